//! Caps on pulls in flight over all jobs, and how jobs share them.
//!
//! Each free order goes to the job of the highest priority that wants one; among equals to the one with the fewest in flight; among those to the oldest. A job
//! of a thousand nodes thus leaves half of a cap to a second one, as its pulls end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::snapshot::Room;

/// Most pulls in flight at once; none is no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// In the whole cluster.
    pub total: Option<u32>,
    /// From one registry.
    pub per_registry: Option<u32>,
}

impl Caps {
    /// Whether there is anything to keep to.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.total.is_none() && self.per_registry.is_none()
    }
}

/// What a job has and wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim<'a> {
    /// Registry of its image.
    pub host: &'a str,
    /// Higher goes first.
    pub priority: u32,
    /// When it began; earlier goes first among equals.
    pub began: i64,
    /// Orders that it has.
    pub in_flight: usize,
    /// Orders that it would take on top of those.
    pub wants: usize,
}

/// What the caps leave for the job at `index`, if the others want what they said last. None without caps.
#[must_use]
pub fn room(caps: &Caps, claims: &[Claim<'_>], index: usize) -> Option<Room> {
    let mine = claims.get(index).filter(|_| !caps.is_none())?;
    let held = |wanted: &dyn Fn(&Claim<'_>) -> bool| -> usize {
        claims
            .iter()
            .filter(|claim| wanted(claim))
            .map(|claim| claim.in_flight)
            .sum()
    };
    let left =
        |cap: Option<u32>, held: usize| cap.map_or(usize::MAX, |cap| (cap as usize).saturating_sub(held));
    let mut total = left(caps.total, held(&|_| true));
    let mut registries: Vec<(&str, usize)> = Vec::new();
    for claim in claims {
        if !registries.iter().any(|(host, _)| *host == claim.host) {
            let host = claim.host;
            registries.push((host, left(caps.per_registry, held(&|claim| claim.host == host))));
        }
    }
    let mut line: BinaryHeap<_> = claims
        .iter()
        .enumerate()
        .filter(|(_, claim)| claim.wants > 0)
        .map(|(number, claim)| place(claim, claim.in_flight, number, claim.wants))
        .collect();
    let mut orders = 0;
    // Each turn gives one order away, so this ends at the caps, or when nobody wants any more.
    while let Some((priority, Reverse(in_flight), Reverse(began), Reverse(number), wants)) = line.pop() {
        let host = claims[number].host;
        let Some((_, registry)) = registries.iter_mut().find(|(name, _)| *name == host) else {
            continue;
        };
        if total == 0 {
            break;
        }
        if *registry == 0 {
            continue;
        }
        total = total.saturating_sub(1);
        *registry = registry.saturating_sub(1);
        orders += usize::from(number == index);
        if wants > 1 {
            line.push((
                priority,
                Reverse(in_flight + 1),
                Reverse(began),
                Reverse(number),
                wants - 1,
            ));
        }
    }
    let of_registry = registries
        .iter()
        .any(|(host, left)| *host == mine.host && *left == 0);
    let cap = match (caps.per_registry, caps.total) {
        (Some(cap), _) if of_registry => format!("{cap} pulls from {}", mine.host),
        (_, Some(cap)) => format!("{cap} pulls"),
        (Some(cap), None) => format!("{cap} pulls from {}", mine.host),
        (None, None) => String::new(),
    };
    Some(Room { orders, cap })
}

type Place = (u32, Reverse<usize>, Reverse<i64>, Reverse<usize>, usize);

fn place(claim: &Claim<'_>, in_flight: usize, number: usize, wants: usize) -> Place {
    (
        claim.priority,
        Reverse(in_flight),
        Reverse(claim.began),
        Reverse(number),
        wants,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(
        host: &'static str,
        priority: u32,
        began: i64,
        in_flight: usize,
        wants: usize,
    ) -> Claim<'static> {
        Claim {
            host,
            priority,
            began,
            in_flight,
            wants,
        }
    }

    fn rooms(caps: Caps, claims: &[Claim<'_>]) -> Vec<usize> {
        (0..claims.len())
            .map(|index| room(&caps, claims, index).expect("there are caps").orders)
            .collect()
    }

    #[test]
    fn without_caps_there_is_no_bound() {
        assert_eq!(room(&Caps::default(), &[claim("a", 50, 1, 0, 9)], 0), None);
    }

    #[test]
    fn a_cap_of_the_cluster_is_shared_evenly() {
        let caps = Caps {
            total: Some(10),
            per_registry: None,
        };
        assert_eq!(
            rooms(caps, &[claim("a", 50, 1, 0, 1000), claim("b", 50, 2, 0, 1000)]),
            [5, 5]
        );
        // What one has already is counted.
        assert_eq!(
            rooms(caps, &[claim("a", 50, 1, 8, 1000), claim("b", 50, 2, 0, 1000)]),
            [0, 2]
        );
        // What one does not want goes to the other.
        assert_eq!(
            rooms(caps, &[claim("a", 50, 1, 0, 2), claim("b", 50, 2, 0, 1000)]),
            [2, 8]
        );
    }

    #[test]
    fn a_higher_priority_goes_first_and_stops_nothing() {
        let caps = Caps {
            total: Some(4),
            per_registry: None,
        };
        assert_eq!(
            rooms(caps, &[claim("a", 50, 1, 2, 9), claim("b", 90, 2, 0, 9)]),
            [0, 2]
        );
    }

    #[test]
    fn a_full_registry_does_not_hold_up_another() {
        let caps = Caps {
            total: None,
            per_registry: Some(3),
        };
        let claims = [
            claim("a", 90, 1, 3, 9),
            claim("b", 50, 2, 0, 9),
            claim("a", 90, 3, 0, 9),
        ];
        assert_eq!(rooms(caps, &claims), [0, 3, 0]);
        assert_eq!(room(&caps, &claims, 0).expect("capped").cap, "3 pulls from a");
    }
}
