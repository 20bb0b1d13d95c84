//! Finds the runtime and keeps watch over the connection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::cri::Cri;
use super::{Link, Runtime, RuntimeError, Tried};

/// How often a runtime that answers is asked whether it still does.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// How often the space of its file system is read; the runtime walks through its images for it.
const DISK_EVERY: Duration = Duration::from_secs(60);
/// So many checks in a row must fail, unless the connection itself broke: a runtime with a busy disk is slow, not gone.
const FAILED_CHECKS: u32 = 3;
/// Pause between searches while none is there: short at first, so that a restart of the runtime costs seconds.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
];
/// How often the log repeats that none is there.
const LOG_EVERY: Duration = Duration::from_secs(300);

/// Keeps the link until nobody looks at it any more.
pub async fn run(sockets: Vec<String>, link: watch::Sender<Link>) {
    while !link.is_closed() {
        let Some(runtime) = search(&sockets, &link).await else {
            return;
        };
        watch_over(&runtime, &link).await;
    }
}

/// Tries all sockets until one answers.
async fn search(sockets: &[String], link: &watch::Sender<Link>) -> Option<Arc<dyn Runtime>> {
    let mut logged: Option<Instant> = None;
    for round in 0.. {
        let mut tried = Vec::new();
        for socket in sockets {
            match Cri::connect(socket).await {
                Ok((cri, info)) => {
                    tracing::info!(
                        socket,
                        runtime = info.name,
                        version = info.version,
                        "container runtime found"
                    );
                    let runtime: Arc<dyn Runtime> = Arc::new(cri);
                    let disk = runtime.disk().await.ok();
                    link.send_replace(Link::Up {
                        runtime: Arc::clone(&runtime),
                        info,
                        disk,
                    });
                    return Some(runtime);
                }
                Err(error) => tried.push(Tried {
                    socket: socket.clone(),
                    error: error.to_string(),
                }),
            }
        }
        if logged.is_none_or(|last| last.elapsed() >= LOG_EVERY) {
            logged = Some(Instant::now());
            let list: Vec<String> = tried
                .iter()
                .map(|tried| format!("{} ({})", tried.socket, tried.error))
                .collect();
            tracing::warn!(tried = list.join("; "), "no container runtime answers; trying on");
        }
        link.send_replace(Link::Down { tried });
        let pause = PAUSES[round.min(PAUSES.len() - 1)];
        if tokio::time::timeout(pause, link.closed()).await.is_ok() {
            return None;
        }
    }
    None
}

/// Returns when the runtime has gone.
async fn watch_over(runtime: &Arc<dyn Runtime>, link: &watch::Sender<Link>) {
    let mut failed = 0;
    let mut disk_read = Instant::now();
    while tokio::time::timeout(CHECK_EVERY, link.closed()).await.is_err() {
        match runtime.version().await {
            Ok(_) => failed = 0,
            Err(error) if gone(&error) || failed + 1 >= FAILED_CHECKS => {
                tracing::warn!(%error, "container runtime lost");
                lost(link, &error);
                return;
            }
            Err(error) => {
                failed += 1;
                tracing::info!(%error, failed, "container runtime is slow");
                continue;
            }
        }
        if disk_read.elapsed() >= DISK_EVERY {
            disk_read = Instant::now();
            if let Ok(space) = runtime.disk().await {
                link.send_if_modified(|link| match link {
                    Link::Up { disk, .. } if *disk != Some(space) => {
                        *disk = Some(space);
                        true
                    }
                    _ => false,
                });
            }
        }
    }
}

/// Says at once that the runtime is gone; which sockets answer is found out next.
fn lost(link: &watch::Sender<Link>, error: &RuntimeError) {
    link.send_modify(|link| {
        if let Link::Up { info, .. } = link {
            let tried = Tried {
                socket: info.socket.clone(),
                error: error.to_string(),
            };
            *link = Link::Down { tried: vec![tried] };
        }
    });
}

/// Whether the connection broke, rather than the answer being late.
fn gone(error: &RuntimeError) -> bool {
    !error.text.starts_with("no answer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_was_tried_is_told_and_the_search_goes_on() {
        let (sender, mut link) = watch::channel(Link::Down { tried: Vec::new() });
        let sockets = vec!["/nonexistent/a.sock".to_owned(), "/nonexistent/b.sock".to_owned()];
        let search = tokio::spawn(run(sockets, sender));
        for _ in 0..3 {
            link.changed().await.expect("still searching");
            let Link::Down { tried } = link.borrow_and_update().clone() else {
                panic!("nothing listens there")
            };
            assert_eq!(tried.len(), 2);
            assert_eq!(tried[1].socket, "/nonexistent/b.sock");
            assert!(tried[1].error.contains("No such file"), "{}", tried[1].error);
        }
        drop(link);
        search.await.expect("ends when nobody looks");
    }
}
