//! One large image at a time: time beside that of `crictl pull`, what the agent uses for it, and what it tells meanwhile.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kruise_tests::registry::{Compression, Front, ImageSpec, LayerSpec};
use serde::Serialize;
use serde_json::{Deserializer, Value, json};

use super::agents::{Agent, crictl_pull, remove};
use crate::bench::bed::{Bed, Programs};
use crate::bench::meter;

/// The image has so many layers of one size.
const LAYERS: u64 = 4;
/// Bytes per second of each layer; the runtime fetches three at once.
const RATE: u64 = 12 << 20;

/// All single pulls.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Single {
    pub(crate) image_bytes: u64,
    /// Seconds of each `crictl pull`.
    pub(crate) crictl: Vec<f64>,
    pub(crate) ours: Vec<Pull>,
}

/// A pull by the agent.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Pull {
    /// From the call until its end.
    pub(crate) seconds: f64,
    /// Processor time of the agent meanwhile.
    pub(crate) cpu_seconds: f64,
    /// Most memory of the agent ever.
    pub(crate) peak_bytes: u64,
    pub(crate) told: Told,
}

/// What was told of the bytes.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Told {
    /// Messages whose bytes were more than before.
    pub(crate) updates: usize,
    /// Longest time between two of them while bytes were on their way, in seconds.
    pub(crate) longest_gap: f64,
    pub(crate) fell: bool,
    pub(crate) last: u64,
    pub(crate) total: u64,
}

pub(crate) async fn run(
    bed: &Bed,
    programs: &Programs,
    front: &Front,
    bytes: u64,
    rounds: usize,
) -> Result<Single> {
    let name = format!("bench/single-{}", bytes >> 20);
    let spec = (0..LAYERS).fold(ImageSpec::new(&name, "1"), |spec, layer| {
        spec.layer(LayerSpec::random(bytes / LAYERS, 77 + layer).compression(Compression::None))
    });
    let pushed = bed.cluster.registry().push(&spec).await?;
    front.limit_each(RATE);
    let image = format!("{}/{name}:1", front.host());
    let mut single = Single {
        image_bytes: pushed.size(),
        ..Single::default()
    };
    let nodes = bed.cluster.nodes();
    let [first, second, ..] = nodes.as_slice() else {
        bail!("single pulls take two nodes");
    };
    for round in 0..rounds {
        // Taking turns, so that neither has the better node or the quieter moments.
        let (theirs, own) = if round % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        single
            .crictl
            .push(crictl_pull(bed, theirs, &image)?.as_secs_f64());
        remove(bed, theirs, &image)?;
        let agent = Agent::alone(bed, programs, own)?;
        let pull = our_pull(bed, &agent, &image)?;
        remove(bed, own, &image)?;
        eprintln!("  crictl {:.2} s; {pull:?}", single.crictl[round]);
        single.ours.push(pull);
    }
    Ok(single)
}

fn our_pull(bed: &Bed, agent: &Agent, image: &str) -> Result<Pull> {
    let before = meter::cpu(agent.process()?)?;
    let begun = Instant::now();
    let request = json!({"image": image}).to_string();
    let mut call = agent
        .call(bed, "PullImage", &request)
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run grpcurl")?;
    let output = call.stdout.take().context("the output was asked for")?;
    let told = listen(output)?;
    if !call.wait()?.success() {
        bail!("the agent of {} could not pull {image}: {told:?}", agent.node);
    }
    Ok(Pull {
        seconds: begun.elapsed().as_secs_f64(),
        cpu_seconds: (meter::cpu(agent.process()?)? - before).as_secs_f64(),
        peak_bytes: meter::memory(agent.process()?)?.peak,
        told,
    })
}

/// Reads messages as they come.
fn listen(output: impl std::io::Read) -> Result<Told> {
    let mut told = Told::default();
    let mut since: Option<Instant> = None;
    for message in Deserializer::from_reader(output).into_iter::<Value>() {
        let message = message.context("grpcurl writes JSON")?;
        let progress = &message["task"]["progress"];
        let number = |name: &str| -> u64 {
            let text = progress[name].as_str();
            text.and_then(|text| text.parse().ok()).unwrap_or_default()
        };
        let (done, total) = (number("bytesDone"), number("bytesTotal"));
        told.fell |= done < told.last;
        told.total = told.total.max(total);
        if done > told.last {
            told.updates += 1;
            let now = Instant::now();
            let gap = since.replace(now).map_or(Duration::ZERO, |before| now - before);
            told.longest_gap = told.longest_gap.max(gap.as_secs_f64());
        }
        told.last = done;
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::listen;

    #[test]
    fn bytes_are_read_as_they_come() {
        let message = |done: u64| {
            format!(r#"{{"task": {{"progress": {{"bytesDone": "{done}", "bytesTotal": "30"}}}}}}"#)
        };
        let text = [10, 20, 20, 30].map(message).join("\n");
        let told = listen(text.as_bytes()).expect("JSON");
        assert_eq!(
            (told.updates, told.last, told.total, told.fell),
            (3, 30, 30, false)
        );
        let text = [10, 5].map(message).join("");
        assert!(listen(text.as_bytes()).expect("JSON").fell);
    }
}
