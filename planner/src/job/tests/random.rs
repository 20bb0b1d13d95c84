//! Whatever happens, the promises hold.

use proptest::prelude::*;

use super::world::World;
use crate::job::*;
use crate::task::Reason;
use kruise_api::ids::NodeName;

/// Something that happens to a job.
#[derive(Clone, Debug)]
enum Happening {
    Succeed(usize),
    Fail(usize),
    Away(usize),
    Back(usize),
    Released(usize),
    Image(u8),
    Parallelism(i32),
    Pass(i64),
    Failover,
    Trouble(usize, bool),
    Answer(usize, bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    let node = 1..=6_usize;
    prop_oneof![
        5 => node.clone().prop_map(Happening::Succeed),
        2 => node.clone().prop_map(Happening::Fail),
        1 => node.clone().prop_map(Happening::Away),
        2 => node.clone().prop_map(Happening::Back),
        3 => node.prop_map(Happening::Released),
        1 => (0..2_u8).prop_map(Happening::Image),
        1 => (-1..5_i32).prop_map(Happening::Parallelism),
        3 => (1..40_i64).prop_map(Happening::Pass),
        1 => Just(Happening::Failover),
        1 => (1..=6_usize, any::<bool>()).prop_map(|(i, on)| Happening::Trouble(i, on)),
        2 => (1..=6_usize, any::<bool>()).prop_map(|(i, present)| Happening::Answer(i, present)),
    ]
}

fn happen(world: &mut World, what: &Happening) {
    let held = |world: &World, i: usize| {
        let name = NodeName::new(format!("node{i}"));
        world
            .tasks
            .get(&name)
            .is_some_and(|task| matches!(task.state, TaskState::InFlight { .. }))
    };
    match what {
        Happening::Succeed(i) if held(world, *i) => world.succeed(&format!("node{i}")),
        Happening::Fail(i) if held(world, *i) => world.fail(&format!("node{i}"), Reason::NotFound),
        Happening::Succeed(_) | Happening::Fail(_) => {}
        Happening::Away(i) => world.agent(&format!("node{i}"), AgentView::Away),
        Happening::Back(i) => world.agent(&format!("node{i}"), AgentView::Attached),
        Happening::Released(i) => {
            let name = NodeName::new(format!("node{i}"));
            if world
                .tasks
                .get(&name)
                .is_some_and(|task| task.state == TaskState::Cancelling)
            {
                world.tasks.remove(&name);
            }
        }
        Happening::Image(i) => {
            world.spec.image = format!("nginx:{i}");
            world.generation += 1;
        }
        Happening::Parallelism(n) => {
            world.spec.parallelism = Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(*n));
            world.generation += 1;
        }
        Happening::Pass(seconds) => world.pass(*seconds),
        Happening::Trouble(i, on) => {
            world.node(&format!("node{i}")).trouble = on.then_some(NodeTrouble::NotReady);
        }
        Happening::Answer(i, present) => {
            let name = format!("node{i}");
            if world.memory.probes.contains_key(&NodeName::new(name.as_str())) {
                world.answer(&name, *present);
            }
        }
        Happening::Failover => {
            world.memory = JobMemory {
                last_write: Some(world.now),
                ..JobMemory::default()
            }
        }
    }
}

proptest! {
    /// The checker runs in each step: whatever happens, the promises hold and the job comes to an end.
    #[test]
    fn promises_hold_through_anything(happenings in prop::collection::vec(happening(), 0..120)) {
        let mut world = World::new(6, r#"{"parallelism":2}"#);
        for node in world.nodes.values_mut() {
            node.answers_probes = true;
        }
        world.step();
        for what in &happenings {
            happen(&mut world, what);
            world.step();
        }
        // From here on everybody is well: the job must end.
        happen(&mut world, &Happening::Parallelism(2));
        for i in 1..=6 {
            happen(&mut world, &Happening::Back(i));
            happen(&mut world, &Happening::Trouble(i, false));
        }
        for _ in 0..40 {
            for i in 1..=6 {
                happen(&mut world, &Happening::Released(i));
                happen(&mut world, &Happening::Succeed(i));
            }
            world.pass(31);
            world.step();
        }
        prop_assert!(world.status().completion_time.is_some(), "{:?}", world.plan());
    }

    /// With results in any order, a job without trouble costs few writes.
    #[test]
    fn writes_are_few(spans in prop::collection::vec(0..3_i64, 20)) {
        let mut world = World::new(20, r#"{"parallelism":4}"#);
        let mut writes = usize::from(world.step().write.is_some());
        for span in spans {
            world.pass(span);
            let next = world.tasks.iter().find(|(_, task)| matches!(task.state, TaskState::InFlight { .. }));
            let name = next.expect("one runs").0.to_string();
            world.succeed(&name);
            writes += usize::from(world.step().write.is_some());
        }
        prop_assert!(world.status().completion_time.is_some());
        prop_assert!(writes <= 6, "{} writes", writes);
    }
}
