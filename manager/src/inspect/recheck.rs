//! A watch may last for hours. Whoever reads it must stay who they are and keep their right for as long.

use std::time::Duration;

use futures::{Stream, StreamExt};
use tonic::Status;

use crate::identity::{AuthError, Identity};

/// How often. With what is remembered about tokens and rights this stays below a minute.
const INTERVAL: Duration = Duration::from_secs(15);

/// Whose right to what.
pub(super) struct Caller {
    pub(super) identity: Identity,
    /// Lives as long as the stream, in this memory only.
    pub(super) token: String,
    pub(super) resource: &'static str,
    pub(super) verb: &'static str,
    /// For the log.
    pub(super) peer: String,
}

impl Caller {
    async fn check(&self) -> Result<(), AuthError> {
        let person = self.identity.person(&self.token).await?;
        self.identity.allowed(&person, self.resource, self.verb).await
    }
}

/// The stream, until its reader is not known or allowed any more.
pub(super) fn rechecked<T: Send>(
    stream: impl Stream<Item = Result<T, Status>> + Send,
    caller: Caller,
) -> impl Stream<Item = Result<T, Status>> + Send {
    let mut due = tokio::time::interval(INTERVAL);
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick is now, and now was checked before.
    due.reset();
    let state = Some((Box::pin(stream), caller, due));
    futures::stream::unfold(state, |state| async move {
        let (mut stream, caller, mut due) = state?;
        loop {
            let tick = tokio::select! {
                // Both are cancel-safe: an item is either taken or still there.
                item = stream.next() => return item.map(|item| (item, Some((stream, caller, due)))),
                _ = due.tick() => caller.check().await,
            };
            match tick {
                // Nobody can tell; the next look may.
                Ok(()) | Err(AuthError::Backend { .. }) => {}
                Err(error) => {
                    let status = Status::from(error);
                    let reason = crate::dispatch::refuse::reason(&status);
                    tracing::warn!(
                        peer = caller.peer,
                        reason,
                        detail = status.message(),
                        "a reader was cut off"
                    );
                    return Some((Err(status), None));
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU8, Ordering};

    use futures::FutureExt;
    use futures::future::BoxFuture;

    use super::*;
    use crate::identity::{AgentIdentity, Person, Verifier};

    /// Answers by a switch: 0 yes, 1 trouble, 2 no.
    struct Switch(Arc<AtomicU8>);

    impl Verifier for Switch {
        fn agent<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<AgentIdentity, AuthError>> {
            std::future::ready(Err(AuthError::TokenMissing)).boxed()
        }

        fn person<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Person, AuthError>> {
            let person = Person {
                username: "ann".into(),
                uid: String::new(),
                groups: Vec::new(),
                extra: Vec::new(),
            };
            let answer = match self.0.load(Ordering::Relaxed) {
                0 => Ok(person),
                1 => Err(AuthError::Backend {
                    detail: String::new(),
                    retry_after: Duration::ZERO,
                }),
                _ => Err(AuthError::TokenExpired),
            };
            std::future::ready(answer).boxed()
        }

        fn allowed<'a>(
            &'a self,
            _: &'a Person,
            _: &'a str,
            _: &'a str,
        ) -> BoxFuture<'a, Result<(), AuthError>> {
            std::future::ready(Ok(())).boxed()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_who_is_known_no_more_is_cut_off_and_trouble_is_no_reason() {
        let switch = Arc::new(AtomicU8::new(0));
        let caller = Caller {
            identity: Identity::new(Switch(Arc::clone(&switch))),
            token: "t".into(),
            resource: "tasks",
            verb: "watch",
            peer: String::new(),
        };
        let first = futures::stream::iter([Ok(1)]).chain(futures::stream::pending());
        let mut stream = Box::pin(rechecked(first, caller));
        assert!(matches!(stream.next().await, Some(Ok(1))));
        for setting in [0, 1] {
            switch.store(setting, Ordering::Relaxed);
            let waited = tokio::time::timeout(Duration::from_secs(600), stream.next()).await;
            assert!(waited.is_err(), "{setting}");
        }
        switch.store(2, Ordering::Relaxed);
        let began = tokio::time::Instant::now();
        let end = stream.next().await.expect("told").expect_err("cut off");
        assert_eq!(end.code(), tonic::Code::Unauthenticated);
        assert!(began.elapsed() <= INTERVAL);
        assert!(stream.next().await.is_none());
    }
}
