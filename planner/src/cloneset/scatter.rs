//! Spreads pods with a certain label over the whole order of an update.

/// One term: `order` are the candidates, `matching` tells which pods the term is about, and the totals are those of all pods of the set.
pub(super) fn spread(
    order: &[usize],
    matching: impl Fn(usize) -> bool,
    total_matching: usize,
    total: usize,
) -> Vec<usize> {
    let (mut chosen, others): (Vec<usize>, Vec<usize>) = order.iter().partition(|index| matching(**index));
    if chosen.len() <= 1 || others.len() <= 1 {
        return order.to_vec();
    }
    // The last one waits for the very end, so that the whole update is spanned.
    let last = chosen.pop();
    let total_matching = total_matching.saturating_sub(1).max(1);
    let total_others = total.saturating_sub(total_matching + 1);
    let steps = Steps::of(chosen.len(), others.len(), total_matching, total_others);
    let (mut chosen, mut others) = (chosen.into_iter(), others.into_iter());
    let mut spread: Vec<usize> = others.by_ref().take(steps.head).collect();
    for _ in 0..steps.times {
        spread.extend(chosen.by_ref().take(steps.chosen));
        spread.extend(others.by_ref().take(steps.others));
    }
    spread.extend(chosen);
    spread.extend(others);
    spread.extend(last);
    spread
}

struct Steps {
    head: usize,
    times: usize,
    chosen: usize,
    others: usize,
}

impl Steps {
    /// Follows the proportion of the candidates, unless all pods of the set have a smaller share of others: then some of the others were
    /// left out of earlier steps and go first.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the comparison is one of 32 bit floats in every implementation"
    )]
    fn of(chosen: usize, others: usize, total_chosen: usize, total_others: usize) -> Self {
        let share_of_all = total_others as f32 / total_chosen as f32;
        if share_of_all >= others as f32 / chosen as f32 {
            let (times, chosen, others) = proportion(chosen, others);
            return Self {
                head: 0,
                times,
                chosen,
                others,
            };
        }
        let (_, part_chosen, part_others) = proportion(total_chosen, total_others);
        let times = (chosen / part_chosen.max(1)).min(others / part_others.max(1));
        Self {
            head: others - times * part_others,
            times,
            chosen: part_chosen,
            others: part_others,
        }
    }
}

/// How often a step is made, and how many of each go into one, rounded half up.
fn proportion(a: usize, b: usize) -> (usize, usize, usize) {
    let times = a.min(b).max(1);
    let part = |number: usize| (2 * number + times) / (2 * times);
    (times, part(a), part(b))
}
