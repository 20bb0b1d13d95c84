//! One line per situation, and a whole life with one hand on the clock.

use super::*;

const DAY: i64 = 86_400;
const OVERLAP: Duration = Duration::from_secs(300);

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("in range")
}

fn id(n: u8) -> Id {
    [n; 32]
}

fn ids(all: &[u8]) -> BTreeSet<Id> {
    all.iter().map(|n| id(*n)).collect()
}

fn life(from: i64, days: i64) -> Life {
    Life {
        from: at(from),
        until: at(from + days * DAY),
    }
}

/// A healthy store made at 0.
fn healthy() -> Facts {
    Facts {
        authority: Some(Authority {
            id: id(1),
            life: life(0, 365),
            has_key: true,
        }),
        leaf: Some(Leaf {
            life: life(0, 90),
            fits: true,
            names: true,
        }),
        bundle: ids(&[1]),
        ..Facts::default()
    }
}

fn with(change: impl FnOnce(&mut Facts)) -> Facts {
    let mut facts = healthy();
    change(&mut facts);
    facts
}

fn leaf(facts: &mut Facts) -> &mut Leaf {
    facts.leaf.as_mut().expect("a healthy store has one")
}

#[test]
fn any_replica_mends_what_cannot_serve_and_leaves_the_rest_to_the_leader() {
    let next = |since| {
        Some(Next {
            id: id(2),
            life: life(100, 365),
            trusted_since: since,
        })
    };
    let due = 31 * DAY;
    let table = [
        (
            "empty",
            Facts::default(),
            0,
            Step::MakeAuthority,
            Step::MakeAuthority,
        ),
        ("healthy", healthy(), 0, Step::Nothing, Step::Nothing),
        (
            "no serving certificate",
            with(|f| f.leaf = None),
            0,
            Step::MakeLeaf,
            Step::MakeLeaf,
        ),
        (
            "signed by another",
            with(|f| leaf(f).fits = false),
            0,
            Step::MakeLeaf,
            Step::MakeLeaf,
        ),
        (
            "a name is missing",
            with(|f| leaf(f).names = false),
            0,
            Step::MakeLeaf,
            Step::MakeLeaf,
        ),
        ("ended", healthy(), 90 * DAY, Step::MakeLeaf, Step::MakeLeaf),
        (
            "a third of its life",
            healthy(),
            30 * DAY,
            Step::Nothing,
            Step::MakeLeaf,
        ),
        (
            "just before that",
            healthy(),
            30 * DAY - 1,
            Step::Nothing,
            Step::Nothing,
        ),
        (
            "the authority ended",
            healthy(),
            365 * DAY,
            Step::MakeAuthority,
            Step::MakeAuthority,
        ),
        (
            "nobody trusts us",
            with(|f| f.bundle.clear()),
            0,
            Step::WriteBundle(ids(&[1])),
            Step::WriteBundle(ids(&[1])),
        ),
        (
            "something else is trusted too",
            with(|f| f.bundle = ids(&[1, 9])),
            0,
            Step::Nothing,
            Step::WriteBundle(ids(&[1])),
        ),
        (
            "a third of the authority's life",
            with(|f| leaf(f).life = life(120 * DAY, 90)),
            122 * DAY,
            Step::Nothing,
            Step::MakeNext,
        ),
        (
            "a next authority that nobody trusts yet",
            with(|f| f.next = next(None)),
            due,
            Step::Nothing,
            Step::WriteBundle(ids(&[1, 2])),
        ),
        (
            "trusted, since nobody knows when",
            with(|f| {
                f.next = next(None);
                f.bundle = ids(&[1, 2]);
            }),
            due,
            Step::Nothing,
            Step::StampNext,
        ),
        (
            "trusted for too short a time, other work goes on",
            with(|f| {
                f.next = next(Some(at(due)));
                f.bundle = ids(&[1, 2]);
            }),
            due + 299,
            Step::Nothing,
            Step::MakeLeaf,
        ),
        (
            "trusted for long enough",
            with(|f| {
                f.next = next(Some(at(due)));
                f.bundle = ids(&[1, 2]);
            }),
            due + 300,
            Step::Nothing,
            Step::Promote,
        ),
        (
            "stamped, but taken out of the bundle again",
            with(|f| f.next = next(Some(at(0)))),
            due,
            Step::Nothing,
            Step::WriteBundle(ids(&[1, 2])),
        ),
        (
            "an old authority whose certificates live",
            with(|f| {
                f.old = ids(&[7]);
                f.old_until = Some(at(10));
                f.bundle = ids(&[1, 7]);
            }),
            9,
            Step::Nothing,
            Step::Nothing,
        ),
        (
            "an old authority whose certificates have ended",
            with(|f| {
                f.old = ids(&[7]);
                f.old_until = Some(at(10));
                f.bundle = ids(&[1, 7]);
            }),
            10,
            Step::Nothing,
            Step::DropOld,
        ),
    ];
    for (name, facts, now, replica, leader) in table {
        assert_eq!(
            plan(&facts, Role::Replica, OVERLAP, at(now)),
            replica,
            "{name}, any replica"
        );
        assert_eq!(
            plan(&facts, Role::Leader, OVERLAP, at(now)),
            leader,
            "{name}, the leader"
        );
    }
}

#[test]
fn certificates_of_others_are_served_and_never_replaced() {
    let foreign = |change: fn(&mut Facts)| {
        with(|facts| {
            facts.authority.as_mut().expect("healthy").has_key = false;
            change(facts);
        })
    };
    for (name, facts, now, expected) in [
        ("all is well", foreign(|_| {}), 0, Step::Nothing),
        (
            "old, but that is the owner's business",
            foreign(|_| {}),
            89 * DAY,
            Step::Nothing,
        ),
        (
            "not all of our names",
            foreign(|f| leaf(f).names = false),
            0,
            Step::Nothing,
        ),
        ("ended", foreign(|_| {}), 90 * DAY, Step::ForeignBroken),
        ("unfit", foreign(|f| leaf(f).fits = false), 0, Step::ForeignBroken),
        (
            "not trusted yet",
            foreign(|f| f.bundle = ids(&[9])),
            0,
            Step::WriteBundle(ids(&[1, 9])),
        ),
    ] {
        assert_eq!(plan(&facts, Role::Leader, OVERLAP, at(now)), expected, "{name}");
    }
}

/// Does a step as the store would, with certificates numbered in the order of their making.
fn done(facts: &mut Facts, step: Step, now: i64, made: &mut u8) {
    let mut fresh = || {
        *made += 1;
        id(*made)
    };
    match step {
        Step::MakeAuthority => {
            *facts = Facts {
                authority: Some(Authority {
                    id: fresh(),
                    life: life(now, 365),
                    has_key: true,
                }),
                leaf: Some(Leaf {
                    life: life(now, 90),
                    fits: true,
                    names: true,
                }),
                bundle: facts.bundle.clone(),
                ..Facts::default()
            }
        }
        Step::MakeLeaf => {
            facts.leaf = Some(Leaf {
                life: life(now, 90),
                fits: true,
                names: true,
            });
        }
        Step::MakeNext => {
            facts.next = Some(Next {
                id: fresh(),
                life: life(now, 365),
                trusted_since: None,
            });
        }
        Step::StampNext => facts.next.as_mut().expect("planned").trusted_since = Some(at(now)),
        Step::Promote => {
            let Next { id, life: until, .. } = facts.next.take().expect("planned");
            let before = facts.authority.replace(Authority {
                id,
                life: until,
                has_key: true,
            });
            facts.old.extend(before.map(|authority| authority.id));
            facts.old_until = facts.leaf.as_ref().map(|leaf| leaf.life.until);
            facts.leaf = Some(Leaf {
                life: life(now, 90),
                fits: true,
                names: true,
            });
        }
        Step::DropOld => {
            facts.old.clear();
            facts.old_until = None;
        }
        Step::WriteBundle(bundle) => facts.bundle = bundle,
        Step::Nothing | Step::ForeignBroken => panic!("{step:?} is no step"),
    }
}

#[test]
fn over_ten_years_whoever_signs_is_trusted_before_and_nobody_is_trusted_for_ever() {
    let (mut facts, mut made) = (Facts::default(), 0);
    let mut trusted_from = std::collections::BTreeMap::new();
    let mut now = 0;
    while now < 3650 * DAY {
        let mut steps = 0;
        loop {
            let signer = facts.authority.as_ref().map(|authority| authority.id);
            match plan(&facts, Role::Leader, OVERLAP, at(now)) {
                Step::Nothing => break,
                step => done(&mut facts, step, now, &mut made),
            }
            for id in &facts.bundle {
                trusted_from.entry(*id).or_insert(now);
            }
            let signs = facts.authority.as_ref().expect("made").id;
            if now > 0 && signer != Some(signs) {
                assert!(now - trusted_from[&signs] >= 300, "at {now}");
            }
            steps += 1;
            assert!(steps < 10, "it comes to rest");
        }
        assert!(facts.bundle.contains(&facts.authority.as_ref().expect("made").id));
        assert!(facts.bundle.len() <= 3, "at {now}");
        assert!(!facts.leaf.as_ref().expect("made").life.is_over(at(now + DAY / 2)));
        now += DAY / 4;
    }
    assert!((28..=31).contains(&made), "{made} authorities in ten years");
}
