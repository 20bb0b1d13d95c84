//! Whole histories of a set from one number: the real controller over a played API server whose watches fall silent, which refuses writes, loses
//! them, or does them without an answer; leaders that end at any write; people who change their minds meanwhile. After the last fault the set
//! comes to what is wanted, and writing stops.
//!
//! `KRUISE_SEED=n` replays one history; `KRUISE_SOAK=10000` plays as many.

mod judge;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::space::Kind;
use super::server::Fate;
use super::world::{World, image_of, set, text};
use crate::engine::tests::seeds::chance::Chance;
use judge::Judge;

/// Between two looks of whoever does the harm.
const TICK: Duration = Duration::from_millis(20);
/// A watch is silent for so long at most.
const SILENCE_MS: u64 = 3_000;
/// After the last fault everything is done by then, the longest back-off included.
const PATIENCE: Duration = Duration::from_secs(600);
/// Nothing is written for so long in the end.
const QUIET: Duration = Duration::from_secs(90);

/// One history.
struct History {
    world: World,
    chance: Chance,
    judge: Arc<Mutex<Judge>>,
    began: Instant,
    /// A write that the leader does not outlive is under way.
    ends: Arc<AtomicBool>,
    silent_until: Option<Instant>,
    /// Whether another template than the image can be had.
    in_place_only: bool,
    images: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let world = World::new();
        let (judge, began) = (Arc::<Mutex<Judge>>::default(), Instant::now());
        let witness = Arc::clone(&judge);
        world.server.witness(move |change| {
            lock(&witness).see(change, began.elapsed());
        });
        let ends = Arc::new(AtomicBool::new(false));
        let policy = ["ReCreate", "InPlaceIfPossible", "InPlaceOnly"][chance.index(3)];
        let surge = chance.between(0, 2);
        let rolling = json!({
            "podUpdatePolicy": policy,
            "maxSurge": surge,
            "maxUnavailable": chance.between(u64::from(surge == 0), 3),
        });
        let spec = json!({"updateStrategy": {"rollingUpdate": rolling}});
        let replicas = i32::try_from(chance.between(1, 6)).expect("few");
        world.server.put(Kind::Set, set(replicas, "a:0", &spec));
        let mut history = Self {
            world,
            judge,
            began,
            ends,
            silent_until: None,
            in_place_only: policy == "InPlaceOnly",
            images: 0,
            chance,
        };
        history.spoil_writes(seed);
        history
    }

    fn spoil_writes(&mut self, seed: u64) {
        let mut chance = Chance::new(seed ^ 0xbad);
        let share = self.chance.between(0, 150);
        let ends = Arc::clone(&self.ends);
        self.world.server.fate(move |_| {
            if chance.permille(15) {
                ends.store(true, Ordering::Relaxed);
            }
            if !chance.permille(share) {
                return Fate::Fine;
            }
            [Fate::Refused("no"), Fate::DoneUnanswered, Fate::Lost][chance.index(3)]
        });
    }

    fn note(&self, step: &str) {
        lock(&self.judge).note(self.began.elapsed(), step);
    }

    /// Faults and changes, then peace.
    async fn run(&mut self) -> Result<usize, String> {
        let until = Instant::now() + Duration::from_millis(self.chance.between(6_000, 20_000));
        while Instant::now() < until {
            tokio::time::sleep(TICK).await;
            self.disturb();
            if self.chance.permille(6) {
                self.change_mind();
            }
            self.judged()?;
        }
        self.world.server.fate(|_| Fate::Fine);
        self.world.server.silence(false);
        let rolling = json!({"partition": 0, "paused": false});
        self.world
            .change_spec(&json!({"updateStrategy": {"rollingUpdate": rolling}}));
        self.note("peace");
        self.comes_to_rest().await?;
        self.judged()
    }

    fn judged(&self) -> Result<usize, String> {
        let judge = lock(&self.judge);
        judge.broken.clone().map_or(Ok(judge.writes), Err)
    }

    fn disturb(&mut self) {
        if self.ends.swap(false, Ordering::Relaxed) {
            self.note("another leader");
            self.world.lead();
        }
        let now = Instant::now();
        match self.silent_until {
            Some(until) if until <= now => {
                self.silent_until = None;
                self.world.server.silence(false);
                self.note("watches speak");
            }
            None if self.chance.permille(8) => {
                let span = Duration::from_millis(self.chance.between(1, SILENCE_MS));
                self.silent_until = Some(now + span);
                self.world.server.silence(true);
                self.note(&format!("watches are silent for {span:?}"));
            }
            _ => {}
        }
    }

    /// Somebody edits the set.
    fn change_mind(&mut self) {
        let rolling =
            |field: &str, value: Value| json!({"updateStrategy": {"rollingUpdate": {field: value}}});
        let spec = match self.chance.between(0, 9) {
            0..4 => {
                self.images += 1;
                json!({"template": {"spec": {"containers": [{"name": "main", "image": format!("a:{}", self.images)}]}}})
            }
            4 | 5 => json!({"replicas": self.chance.between(0, 6)}),
            6 => rolling("partition", self.chance.between(0, 4).into()),
            7 => rolling("paused", self.chance.permille(500).into()),
            8 if !self.in_place_only => {
                json!({"template": {"spec": {"hostname": format!("h{}", self.chance.between(0, 9))}}})
            }
            _ => {
                let names = self.world.names();
                let name = (!names.is_empty()).then(|| names[self.chance.index(names.len())].clone());
                json!({"scaleStrategy": {"podsToDelete": name.map(|name| [name])}})
            }
        };
        self.note(&format!("somebody writes {spec}"));
        self.world.change_spec(&spec);
    }

    async fn comes_to_rest(&self) -> Result<(), String> {
        let began = Instant::now();
        while let Some(lacks) = self.lacks() {
            if began.elapsed() > PATIENCE {
                return Err(format!("convergence: {lacks}; status {}", self.world.status()));
            }
            tokio::time::sleep(TICK).await;
            self.judged()?;
        }
        let writes = self.world.server.log().len();
        tokio::time::sleep(QUIET).await;
        let more = self.world.server.log().split_off(writes);
        // What was known to the last status may be written once more.
        if more
            .iter()
            .any(|what| !what.starts_with("patch Set") && !what.contains("Revision"))
        {
            return Err(format!("quiet: {more:?}"));
        }
        match self.lacks() {
            Some(lacks) => Err(format!("rest: {lacks}")),
            None => Ok(()),
        }
    }

    /// What is not as the set wants it.
    fn lacks(&self) -> Option<String> {
        let set = self.world.server.get(Kind::Set, "web")?;
        let (status, spec) = (&set["status"], &set["spec"]);
        let template = &spec["template"]["spec"];
        let pods = self.world.pods();
        let wanted = spec["replicas"].as_u64().unwrap_or(0);
        if pods.len() as u64 != wanted {
            return Some(format!("{} pods, {wanted} wanted", pods.len()));
        }
        let image = text(&template["containers"][0]["image"]);
        let odd = pods
            .iter()
            .find(|pod| image_of(pod) != image || pod["spec"]["hostname"] != template["hostname"]);
        if let Some(odd) = odd {
            return Some(format!("pod {} is not of the template", odd["metadata"]["name"]));
        }
        let named = spec["scaleStrategy"]["podsToDelete"].as_array();
        if named.is_some_and(|named| !named.is_empty()) {
            return Some("pods are named that are to go".to_owned());
        }
        let counters = [
            "replicas",
            "readyReplicas",
            "availableReplicas",
            "updatedReplicas",
        ];
        let told = counters.iter().all(|counter| status[*counter] == wanted)
            && status["observedGeneration"] == set["metadata"]["generation"]
            && status["currentRevision"] == status["updateRevision"];
        (!told).then(|| "the status says something else".to_owned())
    }
}

fn lock(judge: &Mutex<Judge>) -> MutexGuard<'_, Judge> {
    judge.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays one history. What went wrong, with how it came about.
fn play(seed: u64) -> Result<usize, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let mut history = History::new(seed);
        let done = history.run().await;
        done.map_err(|text| {
            format!(
                "{}\n{text}\nreplay with KRUISE_SEED={seed}",
                lock(&history.judge).story()
            )
        })
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Two tests, since a machine for tests has at least two processors.
#[test]
fn every_even_history_of_a_set_ends_well() {
    play_all(0);
}

#[test]
fn every_odd_history_of_a_set_ends_well() {
    play_all(1);
}

fn play_all(remainder: u64) {
    let seeds = match (number("KRUISE_SEED"), number("KRUISE_SOAK")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(many)) => 0..if many > 1 { many } else { 10_000 },
        (None, None) => 0..200,
    };
    let (mut writes, mut failed) = (0, Vec::new());
    for seed in seeds.clone().filter(|seed| seed % 2 == remainder) {
        match play(seed) {
            Ok(wrote) => writes += wrote,
            Err(story) => {
                if failed.is_empty() {
                    println!("{story}");
                }
                failed.push(seed);
            }
        }
    }
    println!("{seeds:?}: {writes} writes");
    assert!(
        failed.is_empty(),
        "{} of the seeds {seeds:?} failed: {failed:?}",
        failed.len()
    );
}
