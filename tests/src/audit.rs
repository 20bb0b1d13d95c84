//! The API server's audit log as counters: who asked what of it, how often.
//!
//! The API server writes a line per request before it forgets it, but a few milliseconds after the client
//! has its answer; whoever counts right after a request waits on the level ([`crate::wait_for`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

use crate::cluster::{Cluster, TEST_AGENT};

/// Requests that are reads, by their verb in the log.
const READS: [&str; 3] = ["get", "list", "watch"];
/// Requests that belong to holding a lease or checking an identity, not to the work.
const UNCOUNTED: [&str; 4] = [
    "coordination.k8s.io/leases",
    "authentication.k8s.io/tokenreviews",
    "authorization.k8s.io/subjectaccessreviews",
    "serviceaccounts/token",
];
/// Objects that the manager deletes when their time to live is over.
const TRANSIENT: [&str; 3] = [
    "apps.kruise.io/imagepulljobs",
    "apps.kruise.io/imagelistpulljobs",
    "apps.kruise.io/containerrecreaterequests",
];

/// A place in the log, to count from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark(u64);

impl Mark {
    /// The beginning of the cluster's life.
    pub const START: Self = Self(0);

    /// The end of the log as it is now.
    pub fn now(cluster: &Cluster) -> Result<Self> {
        let log = cluster.layout().audit_log();
        let length = std::fs::metadata(&log)
            .with_context(|| format!("cannot look at {}", log.display()))?
            .len();
        Ok(Self(length))
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The user agent up to its first space, such as `kruise-manager/0.1.0`.
    pub agent: String,
    pub user: String,
    pub verb: String,
    /// `GROUP/RESOURCE/SUBRESOURCE`, without the parts that are empty; the path of a request for no resource.
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub code: u16,
    pub dry_run: bool,
    pub received: Timestamp,
    /// Whether the answer has ended; a watch goes on until its client or its time is gone.
    pub complete: bool,
    /// Where the request came from: a node's address, a pod's, or the control plane's for the host.
    pub source: String,
}

impl Request {
    #[must_use]
    pub fn is_read(&self) -> bool {
        READS.contains(&self.verb.as_str())
    }
}

/// The requests since a mark, each one once.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    pub requests: Vec<Request>,
}

/// What a product wrote, by the rule that budgets are stated in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiWrites {
    pub writes: usize,
    pub events: usize,
    /// Deletions of objects whose time to live was over.
    pub ttl_deletes: usize,
    /// All three, by verb and resource.
    pub by_resource: BTreeMap<String, usize>,
}

impl Counters {
    /// Reads the log from a mark to its present end.
    pub fn since(cluster: &Cluster, mark: Mark) -> Result<Self> {
        let log = cluster.layout().audit_log();
        let mut file = File::open(&log).with_context(|| format!("cannot open {}", log.display()))?;
        file.seek(SeekFrom::Start(mark.0))
            .context("cannot go to the mark")?;
        Self::read(BufReader::new(file))
    }

    /// Reads the log from a moment on, by the API server's clock.
    pub fn since_time(cluster: &Cluster, from: Timestamp) -> Result<Self> {
        let mut all = Self::since(cluster, Mark::START)?;
        all.requests.retain(|r| r.received >= from);
        Ok(all)
    }

    fn read(mut log: impl BufRead) -> Result<Self> {
        // A watch has two lines, one when it begins to answer and one when it ends.
        let mut requests: Vec<Request> = Vec::new();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        let mut line = String::new();
        while log.read_line(&mut line).context("cannot read the audit log")? > 0 {
            // The last line may be half written.
            if line.ends_with('\n') {
                let entry: Entry = serde_json::from_str(&line).context("an audit line is JSON")?;
                let (id, request) = entry.into_request();
                match seen.get(&id) {
                    Some(&place) => requests[place] = request,
                    None => {
                        seen.insert(id, requests.len());
                        requests.push(request);
                    }
                }
            }
            line.clear();
        }
        Ok(Self { requests })
    }

    /// Counts by user agent, verb, resource and status.
    #[must_use]
    pub fn table(&self) -> BTreeMap<(String, String, String, u16), usize> {
        let mut table = BTreeMap::new();
        for r in &self.requests {
            *table
                .entry((r.agent.clone(), r.verb.clone(), r.resource.clone(), r.code))
                .or_default() += 1;
        }
        table
    }

    /// How many requests are like this.
    #[must_use]
    pub fn count(&self, wanted: impl Fn(&Request) -> bool) -> usize {
        self.requests.iter().filter(|r| wanted(r)).count()
    }

    /// API writes of user agents that begin so. Tests of our own name are never among them.
    #[must_use]
    pub fn api_writes(&self, agent_prefix: &str) -> ApiWrites {
        let mut sum = ApiWrites::default();
        let ours = |r: &&Request| r.agent.starts_with(agent_prefix) && !r.agent.starts_with(TEST_AGENT);
        for r in self.requests.iter().filter(ours) {
            if r.is_read() || r.dry_run || UNCOUNTED.contains(&r.resource.as_str()) {
                continue;
            }
            *sum.by_resource
                .entry(format!("{} {}", r.verb, r.resource))
                .or_default() += 1;
            if r.resource == "events" || r.resource == "events.k8s.io/events" {
                sum.events += 1;
            } else if r.verb == "delete" && TRANSIENT.contains(&r.resource.as_str()) {
                sum.ttl_deletes += 1;
            } else {
                sum.writes += 1;
            }
        }
        sum
    }

    /// Lists of user agents that begin so, by resource.
    #[must_use]
    pub fn lists(&self, agent_prefix: &str) -> BTreeMap<String, usize> {
        self.by_verb(agent_prefix, "list")
    }

    /// Watches begun by user agents that begin so, by resource.
    #[must_use]
    pub fn watches(&self, agent_prefix: &str) -> BTreeMap<String, usize> {
        self.by_verb(agent_prefix, "watch")
    }

    /// Watches that are still open, by resource. Meaningful from [`Mark::START`] only.
    #[must_use]
    pub fn open_watches(&self, agent_prefix: &str) -> BTreeMap<String, usize> {
        let open = Self {
            requests: self.requests.iter().filter(|r| !r.complete).cloned().collect(),
        };
        open.watches(agent_prefix)
    }

    /// The user agents that sent anything.
    #[must_use]
    pub fn agents(&self) -> BTreeSet<&str> {
        self.requests.iter().map(|r| r.agent.as_str()).collect()
    }

    fn by_verb(&self, agent_prefix: &str, verb: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for r in self
            .requests
            .iter()
            .filter(|r| r.verb == verb && r.agent.starts_with(agent_prefix))
        {
            *counts.entry(r.resource.clone()).or_default() += 1;
        }
        counts
    }
}

impl fmt::Display for ApiWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} writes, {} events, {} TTL deletions",
            self.writes, self.events, self.ttl_deletes
        )?;
        for (what, count) in &self.by_resource {
            write!(f, "\n  {count:>4}  {what}")?;
        }
        Ok(())
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "auditID")]
    audit_id: String,
    stage: String,
    #[serde(rename = "requestURI")]
    uri: String,
    verb: String,
    user: User,
    #[serde(default, rename = "sourceIPs")]
    sources: Vec<String>,
    #[serde(default)]
    user_agent: String,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
    request_received_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ObjectRef {
    api_group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl Entry {
    fn into_request(self) -> (String, Request) {
        let (path, query) = self.uri.split_once('?').unwrap_or((&self.uri, ""));
        let object = self.object_ref.unwrap_or_default();
        let parts = [&object.api_group, &object.resource, &object.subresource];
        let parts: Vec<_> = parts
            .into_iter()
            .filter(|p| !p.is_empty())
            .map(String::as_str)
            .collect();
        let request = Request {
            agent: self.user_agent.split(' ').next().unwrap_or_default().to_owned(),
            user: self.user.username,
            verb: self.verb,
            resource: if parts.is_empty() {
                path.to_owned()
            } else {
                parts.join("/")
            },
            namespace: object.namespace,
            name: object.name,
            code: self.response_status.map_or(0, |s| s.code),
            dry_run: query.split('&').any(|p| p.starts_with("dryRun=")),
            received: self.request_received_timestamp,
            complete: self.stage == "ResponseComplete" || self.stage == "Panic",
            source: self.sources.into_iter().next().unwrap_or_default(),
        };
        (self.audit_id, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(
        id: &str,
        stage: &str,
        agent: &str,
        verb: &str,
        group: &str,
        resource: &str,
        query: &str,
    ) -> String {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let entry = serde_json::json!({
            "auditID": id, "stage": stage, "requestURI": format!("/apis/x{query}"), "verb": verb,
            "user": {"username": "u"}, "userAgent": format!("{agent} (linux)"),
            "objectRef": {"apiGroup": group, "resource": resource, "subresource": subresource},
            "responseStatus": {"code": 200}, "requestReceivedTimestamp": "2026-01-01T00:00:00.000001Z",
        });
        format!("{entry}\n")
    }

    fn counters(lines: &[String]) -> Counters {
        Counters::read(lines.concat().as_bytes()).unwrap()
    }

    #[test]
    fn writes_are_counted_by_the_stated_rule() {
        let manager = "kruise-manager/0.1.0";
        let done = "ResponseComplete";
        let job = "imagepulljobs";
        let counted = counters(&[
            line(
                "1",
                done,
                manager,
                "patch",
                "apps.kruise.io",
                "imagepulljobs/status",
                "",
            ),
            line("2", done, manager, "update", "coordination.k8s.io", "leases", ""),
            line("3", done, manager, "create", "", "serviceaccounts/token", ""),
            line("4", done, manager, "create", "", "events", ""),
            line("5", done, manager, "delete", "apps.kruise.io", job, ""),
            line("6", done, manager, "patch", "apps.kruise.io", job, "?dryRun=All"),
            line("7", done, manager, "list", "apps.kruise.io", job, ""),
            line("8", done, "kruise-tests", "create", "apps.kruise.io", job, ""),
            line("9", done, "kubectl", "create", "apps.kruise.io", job, ""),
        ]);
        let writes = counted.api_writes("kruise-");
        assert_eq!(
            (writes.writes, writes.events, writes.ttl_deletes),
            (1, 1, 1),
            "{writes}"
        );
        assert_eq!(counted.lists("kruise-manager").values().sum::<usize>(), 1);
    }

    #[test]
    fn a_watch_counts_once_and_is_open_until_it_ends() {
        let begun = line("1", "ResponseStarted", "a", "watch", "", "pods", "");
        let ended = line("1", "ResponseComplete", "a", "watch", "", "pods", "");
        let open = counters(std::slice::from_ref(&begun));
        assert_eq!((open.watches("a").len(), open.open_watches("a").len()), (1, 1));
        let closed = counters(&[begun, ended]);
        assert_eq!(
            (closed.watches("a")["pods"], closed.open_watches("a").len()),
            (1, 0)
        );
    }

    #[test]
    fn a_half_written_line_waits_for_its_end() {
        let whole = line("1", "ResponseComplete", "a", "get", "", "pods", "");
        assert_eq!(
            counters(&[whole.clone(), whole[..40].to_owned()]).requests.len(),
            1
        );
    }
}
