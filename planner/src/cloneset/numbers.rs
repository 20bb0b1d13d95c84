//! How many pods to add, to take away and to update.

use serde::Serialize;

use super::limits::Limits;

/// Pods of a set by what is so about them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All.
    pub total: i64,
    /// On an older revision.
    pub old: i64,
    /// Held before their deletion.
    pub leaving: i64,
    /// Of those, on an older revision.
    pub leaving_old: i64,
    /// Marked for deletion and not held.
    pub marked: i64,
    /// Of those, on an older revision.
    pub marked_old: i64,
    /// Marked for deletion, not held, and not available.
    pub marked_unavailable: i64,
    /// Held before their deletion, or neither marked nor available.
    pub unavailable: i64,
}

impl Counts {
    /// On an older revision and not held before their deletion.
    #[must_use]
    pub const fn staying_old(&self) -> i64 {
        self.old - self.leaving_old
    }

    /// On the update revision and not held before their deletion.
    #[must_use]
    pub const fn staying_new(&self) -> i64 {
        (self.total - self.old) - (self.leaving - self.leaving_old)
    }
}

/// How far the two sides of the partition are off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Pods too many on older revisions.
    pub old: i64,
    /// Pods too many on the update revision.
    pub new: i64,
}

impl Differences {
    /// Compares what is with what the partition asks for. Where pods only ever move forwards, what would move them back counts as nothing.
    #[must_use]
    pub fn of(counts: &Counts, limits: &Limits, one_way: bool) -> Self {
        let old = counts.staying_old() - limits.partition;
        let new = counts.staying_new() - (limits.replicas - limits.partition);
        if one_way {
            Self {
                old: old.max(0),
                new: new.min(0),
            }
        } else {
            Self { old, new }
        }
    }

    /// Pods to bring to the update revision; negative: pods to bring back to the current one.
    #[must_use]
    pub const fn update_num(self) -> i64 {
        if self.old.abs() <= self.new.abs() {
            self.old
        } else {
            -self.new
        }
    }

    /// Pods of the side to be changed that are too many: how many will change before all is as wanted.
    #[must_use]
    pub const fn to_change(self) -> i64 {
        if self.update_num() < 0 {
            self.new.abs()
        } else {
            self.old.abs()
        }
    }

    /// Pods that could be added while others change, and how many of those on the current revision.
    const fn surge(self) -> (i64, i64) {
        if self.old.signum() * self.new.signum() != -1 {
            return (0, 0);
        }
        if self.old.abs() <= self.new.abs() {
            let surge = self.old.abs();
            (surge, if self.old < 0 { surge } else { 0 })
        } else {
            let surge = self.new.abs();
            (surge, if self.new > 0 { surge } else { 0 })
        }
    }
}

/// The results, under the names that OpenKruise's users know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Numbers {
    /// Pods to bring to the update revision; negative: to bring back to the current one.
    pub update_num: i64,
    /// Pods that may be unavailable while others are updated; may be negative.
    pub update_max_unavailable: i64,
    /// Pods above replicas that are wanted now.
    pub use_surge: i64,
    /// Of those, on the current revision.
    pub use_surge_old_revision: i64,
    /// Pods that are missing.
    pub scale_up_num: i64,
    /// Of those, on the current revision; may be more.
    pub scale_up_num_old_revision: i64,
    /// Pods that may be created now.
    pub scale_up_limit: i64,
    /// Pods too many, those that are leaving already not counted.
    pub scale_down_num: i64,
    /// Of those, on older revisions; may be more.
    pub scale_down_num_old_revision: i64,
    /// Ready pods that may be deleted now.
    pub delete_ready_limit: i64,
}

impl Numbers {
    /// The calculation. `need` is the most pods that an update is worth adding pods for, if that is limited.
    #[must_use]
    pub fn of(
        counts: &Counts,
        limits: &Limits,
        differences: Differences,
        need: Option<i64>,
        exclude_leaving: bool,
    ) -> Self {
        let (replicas, partition) = (limits.replicas, limits.partition);
        let room = limits.max_unavailable + counts.total - replicas;
        let (surge, surge_old) = use_surge(counts, limits, differences, need);
        let (total, old) = if exclude_leaving {
            (counts.total - counts.leaving, counts.old - counts.leaving_old)
        } else {
            (counts.total, counts.old)
        };
        let up = (replicas + surge - total).max(0);
        let down = (counts.total - counts.leaving - counts.marked - (replicas + surge)).max(0);
        let staying_old = counts.old - counts.leaving_old - counts.marked_old;
        let if_any = |number: i64, value: i64| if number > 0 { value.max(0) } else { 0 };
        let update_num = differences.update_num();
        let creation_room = limits
            .scale_limit
            .map_or(up, |limit| up.min((limit - counts.unavailable).max(0)));
        Self {
            update_num,
            update_max_unavailable: if update_num == 0 { 0 } else { room },
            use_surge: surge,
            use_surge_old_revision: surge_old,
            scale_up_num: up,
            scale_up_num_old_revision: if_any(up, partition + surge_old - old),
            scale_up_limit: creation_room,
            scale_down_num: down,
            scale_down_num_old_revision: if_any(down, staying_old - (partition + surge_old)),
            delete_ready_limit: if_any(counts.marked + down, room - counts.unavailable),
        }
    }
}

/// Pods above the wanted number: those that stand in for marked ones, or those that stand in for ones being updated, whichever are more.
fn use_surge(counts: &Counts, limits: &Limits, differences: Differences, need: Option<i64>) -> (i64, i64) {
    if limits.max_surge == 0 {
        return (0, 0);
    }
    let marked = counts.marked;
    let scale = (counts.unavailable + marked - limits.max_unavailable).clamp(0, marked.max(0));
    let scale_old = (scale - (marked - counts.marked_old)).max(0);
    let (update, update_old) = if limits.paused {
        (0, 0)
    } else {
        let (surge, old) = differences.surge();
        let surge = need.map_or(surge, |need| surge.min(need));
        (surge, old.min(surge))
    };
    let (surge, old) = if scale >= update {
        (scale, scale_old)
    } else {
        (update, update_old)
    };
    let surge = surge.min(limits.max_surge);
    (surge, old.min(surge))
}
