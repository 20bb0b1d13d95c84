//! What must hold, judged by what agents do and by what is stored.

use super::agent::{Agent, Down, Task};
use super::slots::Job;
use super::walk::Rules;
use super::world::{NODES, World};

impl World {
    /// I1, in each state: the window, by the agents' own account.
    pub(super) fn judge(&mut self, rules: &Rules) {
        let pulling: Vec<usize> = (0..NODES).filter(|node| self.agents[*node].pulls()).collect();
        if pulling.len() > rules.parallelism.into() {
            self.violation = Some(format!("I1: {pulling:?} pull at once"));
        }
    }

    /// I3 and I4: a job that is over stays as it is, nobody is forgotten, and nobody is counted who has no image.
    pub(super) fn judge_write(&mut self, before: Job, after: Job) {
        if before.over {
            self.violation = Some(format!(
                "I3: a job that is over was written: {before:?} {after:?}"
            ));
        }
        if before.done & !after.done != 0 {
            self.violation = Some(format!(
                "I2: a node that had ended was forgotten: {before:?} {after:?}"
            ));
        }
        for node in (0..NODES).filter(|node| after.done & (1 << node) != 0) {
            if !self.agents[node].has_image {
                self.violation = Some(format!("I4: {node} counts and has no image"));
            }
        }
    }

    /// I6 and I7, at each message that an agent took: what it began, and what it forgot.
    pub(super) fn judge_message(&mut self, node: usize, before: &Agent, message: Down) {
        let after = &self.agents[node];
        if let Down::Set { epoch, order, .. } | Down::Delta { epoch, order, .. } = message {
            let began = order && after.pulls() && !before.pulls();
            if began && epoch < after.heard {
                self.violation = Some(format!(
                    "I6: {node} began for epoch {epoch} after {} spoke",
                    after.heard
                ));
            }
        }
        let forgot = before.task == Some(Task::Done) && after.task != Some(Task::Done);
        let stored = self.job.over || self.job.done & (1 << node) != 0;
        if forgot && !stored {
            self.violation = Some(format!("I7: {node} forgot a result that is not stored"));
        }
    }
}
