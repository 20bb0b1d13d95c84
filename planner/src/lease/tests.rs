//! Tables of single steps. What all steps together guarantee is the model's business.

use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn elector(name: &str) -> Elector {
    Elector {
        name: name.into(),
        address: format!("{name}:9877"),
        timing: Timing::default(),
    }
}

fn record(holder: &str, epoch: u64) -> Record {
    Record {
        holder: holder.into(),
        duration: s(15),
        epoch: Epoch(epoch),
        address: format!("{holder}:9877"),
        transitions: 3,
    }
}

fn seen(version: &str, holder: &str, epoch: u64) -> Option<Seen> {
    Some(Seen {
        version: version.into(),
        record: record(holder, epoch),
    })
}

/// Reads these answers one after the other and gives back the last step.
fn follow(reads: &[(u64, Option<Seen>)], wall: u64) -> (State, Next) {
    let me = elector("me");
    let mut last = (State::new(), Next::Wait);
    for (at, seen) in reads {
        last = me.read(last.0, seen.clone(), s(*at), wall);
    }
    last
}

fn taken(next: &Next) -> Option<(Option<&str>, u64, i32)> {
    let Next::Write(write) = next else { return None };
    assert_eq!(write.purpose, Purpose::Acquire);
    assert_eq!(write.record.holder, "me");
    Some((
        write.precondition.as_deref(),
        write.record.epoch.0,
        write.record.transitions,
    ))
}

/// Leads since 100 s by version "5" with epoch 70.
fn leading() -> State {
    let (state, next) = follow(&[(99, seen("4", "", 69))], 5);
    let Next::Write(write) = next else {
        panic!("{next:?}")
    };
    let (state, next) = elector("me").wrote(state, &write, Outcome::Done("5".into()), s(100), s(101));
    assert_eq!(next, Next::Wait);
    state
}

#[test]
fn a_free_lease_is_taken_at_once_and_a_held_one_when_its_record_stood_still() {
    let none: &[(u64, Option<Seen>)] = &[(0, None)];
    for (name, reads, wall, expected) in [
        ("there is no lease", none, 1_000, Some((None, 1_000, 0))),
        ("released", &[(0, seen("4", "", 69))], 5, Some((Some("4"), 70, 4))),
        ("held", &[(0, seen("4", "other", 69))], 5, None),
        (
            "held, first seen 14 s ago",
            &[(0, seen("4", "other", 69)), (14, seen("4", "other", 69))],
            5,
            None,
        ),
        (
            "held, stood still for 15 s",
            &[(0, seen("4", "other", 69)), (15, seen("4", "other", 69))],
            5,
            Some((Some("4"), 70, 4)),
        ),
        (
            "renewed meanwhile",
            &[
                (0, seen("4", "other", 69)),
                (10, seen("5", "other", 69)),
                (20, seen("5", "other", 69)),
            ],
            5,
            None,
        ),
        (
            "ours, by a write whose answer was lost",
            &[(0, seen("4", "me", 69))],
            5,
            Some((Some("4"), 70, 4)),
        ),
        (
            "the clock is ahead of the epoch",
            &[(0, seen("4", "", 69))],
            900,
            Some((Some("4"), 900, 4)),
        ),
        (
            "deleted under its holder",
            &[(0, seen("4", "other", 69)), (3, None)],
            5,
            None,
        ),
        (
            "deleted, and its holder had time to notice",
            &[(0, seen("4", "other", 69)), (3, None), (15, None)],
            5,
            Some((None, 70, 0)),
        ),
        (
            "deleted after a release",
            &[(0, seen("4", "", 69)), (3, None)],
            5,
            Some((None, 70, 0)),
        ),
        (
            "restored from a backup with a lower epoch",
            &[(0, seen("4", "other", 69)), (3, seen("2", "", 12))],
            5,
            Some((Some("2"), 70, 4)),
        ),
    ]
        as [(
            &str,
            &[(u64, Option<Seen>)],
            u64,
            Option<(Option<&str>, u64, i32)>,
        ); 12]
    {
        let (_, next) = follow(reads, wall);
        assert_eq!(taken(&next), expected, "{name}: {next:?}");
    }
}

#[test]
fn a_record_without_a_duration_counts_as_long_as_ours() {
    let bare = Some(Seen {
        version: "1".into(),
        record: Record {
            duration: Duration::ZERO,
            ..record("x", 1)
        },
    });
    assert_eq!(follow(&[(0, bare.clone()), (14, bare.clone())], 5).1, Next::Wait);
    assert!(taken(&follow(&[(0, bare.clone()), (15, bare)], 5).1).is_some());
}

#[test]
fn a_follower_knows_the_leader_until_that_must_have_stopped() {
    let (state, _) = follow(&[(0, seen("4", "other", 69))], 5);
    let me = elector("me");
    assert_eq!(
        me.leader(&state, s(9)).map(|record| record.address.as_str()),
        Some("other:9877")
    );
    assert_eq!(
        me.leader(&state, s(10)),
        None,
        "10 s without a renewal end a leadership"
    );
    let earlier_life = elector("other");
    assert_eq!(earlier_life.leader(&state, s(1)), None);
    assert_eq!(me.leader(&follow(&[(0, seen("4", "", 69))], 5).0, s(1)), None);
    assert_eq!(me.leader(&State::new(), s(1)), None);
}

#[test]
fn a_leader_renews_by_the_version_it_wrote_and_counts_from_when_it_sent() {
    let me = elector("me");
    let Next::Write(write) = me.tick(&leading(), s(102)) else {
        panic!("a renewal")
    };
    assert_eq!(
        (write.precondition.as_deref(), write.purpose),
        (Some("5"), Purpose::Renew)
    );
    assert_eq!(
        (write.record.epoch, write.record.holder.as_str()),
        (Epoch(70), "me")
    );
    let (state, next) = me.wrote(leading(), &write, Outcome::Done("6".into()), s(102), s(105));
    assert_eq!(next, Next::Wait);
    let State::Leading(held) = &state else {
        panic!("{state:?}")
    };
    assert_eq!(held.deadline(&me.timing), s(112));
    assert!(
        matches!(me.tick(&state, s(111)), Next::Write(write) if write.precondition.as_deref() == Some("6"))
    );
    assert_eq!(
        me.tick(&state, s(112)),
        Next::Lose(Loss::Deadline { deadline: s(10) })
    );
}

#[test]
fn outcomes_of_renewals() {
    let me = elector("me");
    let Next::Write(write) = me.tick(&leading(), s(102)) else {
        panic!("a renewal")
    };
    let late = Next::Lose(Loss::Deadline { deadline: s(10) });
    for (outcome, started, now, expected) in [
        (Outcome::Unknown, 102, 106, Next::Wait),
        (Outcome::Unknown, 102, 110, late.clone()),
        (Outcome::Conflict, 102, 103, Next::Read),
        // Stopped for a minute between sending and hearing: others may lead by now.
        (Outcome::Done("6".into()), 102, 162, late),
    ] {
        let (_, next) = me.wrote(leading(), &write, outcome.clone(), s(started), s(now));
        assert_eq!(next, expected, "{outcome:?} at {now}");
    }
}

#[test]
fn after_a_conflict_the_lease_says_whether_we_still_lead() {
    let me = elector("me");
    for (found, expected) in [
        (None, Some(Loss::Gone)),
        (
            seen("9", "other", 71),
            Some(Loss::Taken {
                holder: "other".into(),
            }),
        ),
        (seen("9", "", 70), Some(Loss::Altered)),
        (seen("9", "me", 12), Some(Loss::Altered)),
        (seen("9", "me", 70), None),
    ] {
        let (_, next) = me.read(leading(), found.clone(), s(103), 5);
        match expected {
            Some(loss) => assert_eq!(next, Next::Lose(loss), "{found:?}"),
            None => assert!(
                matches!(&next, Next::Write(write) if write.precondition.as_deref() == Some("9")),
                "{next:?}"
            ),
        }
    }
    let (_, next) = me.read(leading(), seen("9", "me", 70), s(110), 5);
    assert_eq!(next, Next::Lose(Loss::Deadline { deadline: s(10) }));
}

#[test]
fn taking_fails_quietly() {
    let me = elector("me");
    let (state, next) = follow(&[(0, seen("4", "", 69))], 5);
    let Next::Write(write) = next else {
        panic!("a take-over")
    };
    for outcome in [Outcome::Conflict, Outcome::Unknown] {
        let (after, next) = me.wrote(state.clone(), &write, outcome, s(1), s(2));
        assert_eq!((after, next), (state.clone(), Next::Wait));
    }
    // The answer came after our right to act had ended already.
    let (after, next) = me.wrote(state.clone(), &write, Outcome::Done("5".into()), s(1), s(11));
    assert_eq!((after, next), (state, Next::Wait));
}

#[test]
fn a_release_empties_the_holder_and_keeps_the_epoch() {
    let me = elector("me");
    let write = me.release(&leading()).expect("leads");
    assert_eq!(
        (write.precondition.as_deref(), write.purpose),
        (Some("5"), Purpose::Release)
    );
    assert_eq!(
        write.record,
        Record {
            holder: String::new(),
            duration: s(1),
            epoch: Epoch(70),
            address: String::new(),
            transitions: 4
        }
    );
    assert_eq!(me.release(&State::new()), None);
}

#[test]
fn who_yields_makes_the_next_leader_go_higher() {
    let me = elector("me");
    let record = |above| me.yield_to(&leading(), Epoch(above)).expect("leads").record.epoch;
    assert_eq!((record(12), record(900)), (Epoch(70), Epoch(900)));
}
