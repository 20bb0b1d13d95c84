//! The API server: objects with versions, watches that lag, writes that are done without an answer.

use std::collections::BTreeMap;

use kruise_api::ids::JobUid;
use kruise_planner::lease::{Seen, Write};
use serde_json::json;

use super::super::world::{job_object, merge, node_object};
use super::leader::{Input, LeaseAnswer};
use super::world::{FAULTS_END, MANAGERS, SECOND, Sim};
use crate::engine::event::{Event, JobWrite};
use crate::engine::objects::{JobObject, Listing, NodeObject};
use crate::engine::ports::ApiFailure;

pub(super) struct Api {
    pub(super) jobs: BTreeMap<JobUid, JobObject>,
    pub(super) nodes: Vec<NodeObject>,
    pub(super) lease: Option<Seen>,
    version: u64,
    pub(super) last_write: u64,
    made: usize,
    /// Jobs whose image was changed: results of an earlier round are of no use.
    pub(super) reimaged: std::collections::BTreeSet<JobUid>,
}

impl Api {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            jobs: BTreeMap::new(),
            nodes: (0..nodes)
                .map(|node| node_object(&format!("node{node}")))
                .collect(),
            lease: None,
            version: 1,
            last_write: 0,
            made: 0,
            reimaged: Default::default(),
        }
    }

    fn next_version(&mut self) -> String {
        self.version += 1;
        self.version.to_string()
    }
}

impl Sim {
    pub(super) fn create_job(&mut self, number: usize) {
        let parallelism = self.chance.index(3) + 1;
        self.api.made += 1;
        let mut job = job_object(
            &format!("job{number}-{}", self.api.made),
            &json!({"parallelism": parallelism, "image": format!("app{number}:1")}),
        );
        job.version = self.api.next_version();
        let now = self.now;
        self.judge.window(job.uid.as_str(), now, parallelism);
        self.note(|| format!("{} is made, parallelism {parallelism}", job.key));
        self.api.jobs.insert(job.uid.clone(), job.clone());
        self.tell(&Listing::Applied(job));
    }

    /// Somebody edits a job, or takes it away.
    pub(super) fn edit_job(&mut self) {
        let uids: Vec<JobUid> = self.api.jobs.keys().cloned().collect();
        if uids.is_empty() {
            return;
        }
        let uid = uids[self.chance.index(uids.len())].clone();
        let what = self.chance.index(10);
        let parallelism = self.chance.index(4);
        let version = self.api.next_version();
        let now = self.now;
        let job = self.api.jobs.get_mut(&uid).expect("just listed");
        if job.is_complete() {
            return;
        }
        match what {
            0 => {
                self.api.jobs.remove(&uid);
                self.judge.forget_job(uid.as_str());
                self.note(|| format!("{uid} is deleted"));
                self.tell(&Listing::Deleted(uid));
                self.create_job(what);
                return;
            }
            1..=3 => {
                let next = if job.spec.image.ends_with('1') {
                    "app:2"
                } else {
                    "app:1"
                };
                job.spec.image = next.into();
                self.api.reimaged.insert(uid.clone());
            }
            _ => {
                job.spec.parallelism = serde_json::from_value(json!(parallelism)).expect("a number");
                self.judge.window(uid.as_str(), now, parallelism);
                if parallelism == 0 {
                    // Somebody will let it go on.
                    self.after(
                        self.now % (20 * SECOND),
                        super::world::Happening::Heal(super::faults::Cure::Unpause(uid.clone())),
                    );
                }
            }
        }
        let job = self.api.jobs.get_mut(&uid).expect("still there");
        job.generation += 1;
        job.version = version;
        let job = job.clone();
        self.note(|| {
            format!(
                "{} is edited: {} {:?}",
                job.key, job.spec.image, job.spec.parallelism
            )
        });
        self.tell(&Listing::Applied(job));
    }

    pub(super) fn unpause(&mut self, uid: &JobUid) {
        let version = self.api.next_version();
        let now = self.now;
        let Some(job) = self.api.jobs.get_mut(uid) else {
            return;
        };
        job.spec.parallelism = serde_json::from_value(json!(2)).expect("a number");
        self.judge.window(uid.as_str(), now, 2);
        job.generation += 1;
        job.version = version;
        let job = job.clone();
        self.note(|| format!("{} goes on", job.key));
        self.tell(&Listing::Applied(job));
    }

    /// All watches, each with its own lag.
    fn tell(&mut self, news: &Listing<JobObject, JobUid>) {
        for manager in 0..MANAGERS {
            if self.managers[manager].watches() {
                let at = self.watch_time(manager);
                let epoch = self.managers[manager].epoch();
                self.tell_manager(
                    manager,
                    at - self.now,
                    Input::News(epoch, Event::Jobs(news.clone())),
                );
            }
        }
    }

    /// When news arrive: never before earlier ones.
    pub(super) fn watch_time(&mut self, manager: usize) -> u64 {
        let faulty = self.now < FAULTS_END;
        let lag = match self.chance.index(20) {
            0 if faulty => self.chance.between(SECOND, 30 * SECOND),
            1 | 2 if faulty => self.chance.between(100, 3 * SECOND),
            _ => self.chance.between(1, 60),
        };
        let watch = &mut self.managers[manager].watched_until;
        *watch = (self.now + lag).max(*watch + 1);
        *watch
    }

    pub(super) fn latency(&mut self) -> u64 {
        let slow = self.now < FAULTS_END && self.chance.permille(50);
        self.chance.between(1, if slow { 3 * SECOND } else { 40 })
    }

    /// A write of a job, which has arrived.
    pub(super) fn api_write(&mut self, manager: usize, process: u64, uid: JobUid, write: &JobWrite) {
        let result = self.apply_write(&uid, write);
        let faulty = self.now < FAULTS_END;
        let lost = faulty && self.chance.permille(60);
        let result = match result {
            _ if lost => Err(unsure()),
            result => result,
        };
        let delay = if lost { 4 * SECOND } else { self.latency() };
        self.note(|| {
            format!(
                "write of {manager} on {uid}: {}",
                match &result {
                    Ok(_) => "done".to_owned(),
                    Err(error) => error.to_string(),
                }
            )
        });
        let input = Input::Written(Event::Written { job: uid, result });
        self.after(
            delay,
            super::world::Happening::ToManager {
                manager,
                process,
                input: Box::new(input),
            },
        );
    }

    fn apply_write(&mut self, uid: &JobUid, write: &JobWrite) -> Result<Option<JobObject>, ApiFailure> {
        let fresh = self.api.next_version();
        let uids: Vec<String> = self.api.nodes.iter().map(|node| node.uid.to_string()).collect();
        let Some(job) = self.api.jobs.get_mut(uid) else {
            return Err(ApiFailure::Gone);
        };
        let JobWrite::Status { version, patch, .. } = write else {
            panic!("{write:?}")
        };
        if *version != job.version {
            return Err(ApiFailure::Conflict);
        }
        let mut status = serde_json::to_value(&job.status).expect("json");
        merge(&mut status, patch);
        job.status = serde_json::from_value(status).expect("a status");
        job.version = fresh;
        self.api.last_write = self.now;
        let job = job.clone();
        self.judge
            .stored(uid.as_str(), job.status.as_ref().expect("written"), &uids);
        self.tell(&Listing::Applied(job.clone()));
        Ok(Some(job))
    }

    /// A write of the Lease, which has arrived.
    pub(super) fn lease_write(&mut self, write: &Write) -> Option<String> {
        if write.precondition != self.api.lease.as_ref().map(|lease| lease.version.clone()) {
            return None;
        }
        let version = self.api.next_version();
        self.api.lease = Some(Seen {
            version: version.clone(),
            record: write.record.clone(),
        });
        Some(version)
    }

    pub(super) fn lease_answer(&mut self, manager: usize, process: u64, answer: LeaseAnswer) {
        let lost = self.now < FAULTS_END && self.chance.permille(20);
        let delay = if lost { 0 } else { self.latency() };
        if !lost {
            let input = Input::Lease(answer);
            self.after(
                delay,
                super::world::Happening::ToManager {
                    manager,
                    process,
                    input: Box::new(input),
                },
            );
        }
    }
}

pub(super) fn unsure() -> ApiFailure {
    ApiFailure::Unsure {
        detail: "lost".into(),
        retry_after: None,
    }
}
