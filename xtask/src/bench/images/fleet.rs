//! Jobs over more agents than a machine has room for runtimes: real agents with played ones.

use std::time::Duration;

use anyhow::{Result, bail};
use kruise_tests::audit::{Counters, Mark};
use kruise_tests::fleet::control::{Fleet, Request, stamp};
use kruise_tests::fleet::image;
use serde::Serialize;
use serde_json::json;

use crate::bench::bed::Bed;
use crate::bench::jobs::Jobs;
use crate::bench::meter::millis;
use crate::bench::scale::{first, last, millis_of};

const PATIENCE: Duration = Duration::from_secs(180);

/// A job that runs for about half a minute.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Writes {
    pub(crate) agents: usize,
    /// How long the job ran, in seconds.
    pub(crate) seconds: f64,
    pub(crate) api_writes: usize,
    pub(crate) events: usize,
}

/// A job without a limit. Seconds from the request that makes it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Broadcast {
    pub(crate) agents: usize,
    pub(crate) first_order: Vec<f64>,
    pub(crate) last_order: Vec<f64>,
}

/// Runs a job with a window of a tenth of the nodes.
pub(crate) async fn writes(bed: &Bed, jobs: &Jobs, fleet: &mut Fleet, agents: usize) -> Result<Writes> {
    let name = format!("writes-{agents}");
    let image = image(Duration::from_secs(2), Duration::from_secs(4), 0, &name);
    let mark = Mark::now(&bed.cluster)?;
    let begun = stamp();
    jobs.create(&name, &image, json!({"parallelism": agents.div_ceil(10)}))
        .await?;
    let (succeeded, failed) = jobs.complete(&name, PATIENCE).await?;
    let seconds = millis(begun, stamp()) / 1e3;
    if usize::try_from(succeeded + failed)? != agents {
        bail!("{succeeded} succeeded and {failed} failed of {agents}");
    }
    fleet.ask(&Request::Idle {
        within_ms: millis_of(PATIENCE),
    })?;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let writes = Counters::since(&bed.cluster, mark)?.api_writes("kruise-manager");
    let result = Writes {
        agents,
        seconds,
        api_writes: writes.writes,
        events: writes.events,
    };
    eprintln!("  {result:?}");
    Ok(result)
}

/// Runs jobs without a limit, and times their orders where they arrive.
pub(crate) async fn broadcast(
    jobs: &Jobs,
    fleet: &mut Fleet,
    agents: usize,
    rounds: usize,
) -> Result<Broadcast> {
    let mut result = Broadcast {
        agents,
        ..Broadcast::default()
    };
    for round in 0..rounds {
        let name = format!("broadcast-{agents}-{round}");
        // Long enough that no result comes before the last order.
        let image = image(Duration::from_secs(8), Duration::from_secs(12), 0, &name);
        let (asked, _) = jobs.create(&name, &image, json!({"parallelism": agents})).await?;
        let orders = fleet.ask(&Request::Orders {
            image: image.clone(),
            count: agents,
            within_ms: millis_of(PATIENCE),
        })?;
        result.first_order.push(millis(asked, first(&orders)?) / 1e3);
        result.last_order.push(millis(asked, last(&orders)?) / 1e3);
        jobs.complete(&name, PATIENCE).await?;
        fleet.ask(&Request::Idle {
            within_ms: millis_of(PATIENCE),
        })?;
    }
    eprintln!("  {result:?}");
    Ok(result)
}
