//! A verifier for tests: tokens and rights from tables.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{AgentIdentity, AuthError, Person, Verifier};

/// Knows exactly these tokens and rights.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeVerifier {
    /// Agents by token.
    pub(crate) agents: BTreeMap<String, AgentIdentity>,
    /// People by token.
    pub(crate) people: BTreeMap<String, Person>,
    /// (user name, resource, verb)
    pub(crate) rights: BTreeSet<(String, String, String)>,
}

impl FakeVerifier {
    /// Token `agent-NODE` for a node whose UID is `uid-NODE`, good for an hour.
    pub(crate) fn with_agent(mut self, node: &str) -> Self {
        let agent = AgentIdentity {
            node_name: node.into(),
            node_uid: format!("uid-{node}").as_str().into(),
            pod_name: format!("kruise-daemon-{node}"),
            pod_uid: format!("pod-{node}"),
            valid_for: std::time::Duration::from_secs(3600),
        };
        self.agents.insert(format!("agent-{node}"), agent);
        self
    }

    /// Token `person-NAME` with these (resource, verb) rights.
    pub(crate) fn with_person(mut self, name: &str, rights: &[(&str, &str)]) -> Self {
        let person = Person {
            username: name.to_owned(),
            uid: String::new(),
            groups: Vec::new(),
            extra: Vec::new(),
        };
        self.people.insert(format!("person-{name}"), person);
        for (resource, verb) in rights {
            self.rights
                .insert((name.to_owned(), (*resource).to_owned(), (*verb).to_owned()));
        }
        self
    }
}

fn unknown() -> AuthError {
    AuthError::TokenInvalid {
        detail: "not in the table".to_owned(),
    }
}

impl Verifier for FakeVerifier {
    fn agent<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<AgentIdentity, AuthError>> {
        futures::future::ready(self.agents.get(token).cloned().ok_or_else(unknown)).boxed()
    }

    fn person<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<Person, AuthError>> {
        futures::future::ready(self.people.get(token).cloned().ok_or_else(unknown)).boxed()
    }

    fn allowed<'a>(
        &'a self,
        person: &'a Person,
        resource: &'a str,
        verb: &'a str,
    ) -> BoxFuture<'a, Result<(), AuthError>> {
        let right = (person.username.clone(), resource.to_owned(), verb.to_owned());
        let answer = if self.rights.contains(&right) {
            Ok(())
        } else {
            Err(AuthError::Forbidden {
                username: right.0,
                resource: right.1,
                verb: right.2,
            })
        };
        futures::future::ready(answer).boxed()
    }
}
