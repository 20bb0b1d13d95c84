//! What the same machine does at best: a server that only speaks the protocol, with the same agents, in the same run.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use kruise_tests::fleet::control::{Fleet, Request, stamp};
use kruise_tests::fleet::image;
use serde::Serialize;

use super::bed::{Bed, Programs};
use super::meter::{self, Books, Memory, Shares, Spread, millis};
use super::scale::{QUIET, agents, first, free_address, in_sync, last, millis_of, per, say};

/// What a bare server costs. Times in milliseconds unless the name says otherwise.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Floor {
    pub(crate) agents: usize,
    pub(crate) empty: Memory,
    pub(crate) idle: Memory,
    /// From when a killed one listens again until all agents are in sync.
    pub(crate) storm: f64,
    /// Processor time of that.
    pub(crate) storm_cpu: Shares,
    /// From the first order sent until the last has come.
    pub(crate) broadcast: f64,
    pub(crate) cpu_us_per_order: f64,
    /// One order at a time.
    pub(crate) single: Spread,
}

const SETTLE: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures the floor with so many agents.
pub(crate) fn floor(
    bed: &Bed,
    programs: &Programs,
    targets: &Path,
    count: usize,
    orders: usize,
) -> Result<Floor> {
    let (address, ca) = (free_address()?.to_string(), bed.file("floor.crt"));
    let start = |epoch: u64| {
        let arguments = [
            "floor",
            &format!("--listen={address}"),
            &format!("--epoch={epoch}"),
            &format!("--ca={}", ca.display()),
        ];
        Fleet::start(&programs.fleet, &arguments.map(str::to_owned)).map(|(server, _)| server)
    };
    let mut floor = Floor {
        agents: count,
        ..Floor::default()
    };
    let server = start(1)?;
    floor.empty = meter::memory(server.process()?)?;
    let mut fleet = agents(programs, &address, &ca, targets)?;
    in_sync(&mut fleet, 0)?;
    std::thread::sleep(SETTLE);
    floor.idle = meter::memory(server.process()?)?;
    drop(server);
    let before = Books::read(None, fleet.process()?, &bed.api()?)?;
    let mut server = start(2)?;
    let listens = stamp();
    let answer = in_sync(&mut fleet, 1)?;
    floor.storm = millis(listens, last(&answer)?);
    let after = Books::read(Some(server.process()?), fleet.process()?, &bed.api()?)?;
    floor.storm_cpu = after.since(before);
    std::thread::sleep(SETTLE);
    let long = image(Duration::from_secs(8), Duration::from_secs(12), 0, "floor");
    let cpu = meter::cpu(server.process()?)?;
    let begun = first(&broadcast(&mut server, &long, count)?)?;
    let orders_came = wait(&mut fleet, &long, count)?;
    std::thread::sleep(QUIET);
    floor.broadcast = millis(begun, last(&orders_came)?);
    floor.cpu_us_per_order = (meter::cpu(server.process()?)? - cpu).as_secs_f64() * 1e6 / per(count);
    fleet.ask(&Request::Idle {
        within_ms: millis_of(PATIENCE),
    })?;
    let mut times = Vec::new();
    for number in 0..orders {
        let image = image(Duration::ZERO, Duration::ZERO, 0, &format!("floor-{number}"));
        let begun = first(&broadcast(&mut server, &image, 1)?)?;
        times.push(millis(begun, first(&wait(&mut fleet, &image, 1)?)?));
    }
    floor.single = Spread::of(times);
    say(&format!("floor: {floor:?}"));
    Ok(floor)
}

fn broadcast(server: &mut Fleet, image: &str, count: usize) -> Result<kruise_tests::fleet::control::Answer> {
    server.ask(&Request::Broadcast {
        image: image.to_owned(),
        count,
    })
}

fn wait(fleet: &mut Fleet, image: &str, count: usize) -> Result<kruise_tests::fleet::control::Answer> {
    fleet.ask(&Request::Orders {
        image: image.to_owned(),
        count,
        within_ms: millis_of(PATIENCE),
    })
}
