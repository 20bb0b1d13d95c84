//! What goes wrong, and how it is healed.

use kruise_api::ids::JobUid;

use super::world::{FAULTS_END, Happening, MANAGERS, SECOND, Sim};

#[derive(Debug)]
pub(super) enum Cure {
    Wake { manager: usize, process: u64 },
    StartManager(usize),
    StartAgent(usize),
    Connect(usize),
    Unpause(JobUid),
}

impl Sim {
    /// One fault now, and the next one later.
    pub(super) fn fault(&mut self) {
        if self.now >= FAULTS_END {
            return;
        }
        let pause = self.chance.between(SECOND, 25 * SECOND);
        self.after(pause, Happening::Fault);
        let node = self.chance.index(self.agents.len());
        // Rather one that leads.
        let leader = (0..MANAGERS).find(|manager| self.managers[*manager].engine.is_some());
        let manager = leader
            .filter(|_| self.chance.permille(800))
            .unwrap_or_else(|| self.chance.index(MANAGERS));
        let long = self.chance.between(SECOND, 60 * SECOND);
        match self.chance.index(12) {
            0 | 1 => {
                self.note(|| format!("fault: manager {manager} is killed"));
                self.kill_manager(manager, true);
            }
            2 | 3 => {
                let process = self.managers[manager].process;
                if self.managers[manager].alive && !self.managers[manager].paused {
                    self.note(|| format!("fault: manager {manager} sleeps for {long} ms"));
                    self.managers[manager].paused = true;
                    self.after(long, Happening::Heal(Cure::Wake { manager, process }));
                }
            }
            4 | 5 => {
                self.note(|| format!("fault: agent {node} is killed"));
                self.kill_agent(node);
            }
            6 | 7 => {
                let directions = [[true, true], [true, false], [false, true]][self.chance.index(3)];
                let long = long * 2;
                self.note(|| format!("fault: node {node} is cut off {directions:?} for {long} ms"));
                self.blocked[node] = directions;
                self.after(long, Happening::Heal(Cure::Connect(node)));
            }
            8 => {
                self.note(|| format!("fault: the stream of {node} breaks"));
                if let Some(line) = self.agents[node].line {
                    self.agent_hangs_up(node, line, None);
                }
            }
            _ => self.edit_job(),
        }
    }

    pub(super) fn heal(&mut self, cure: Cure) {
        match cure {
            Cure::Wake { manager, process } => self.wake_manager(manager, process),
            Cure::StartManager(manager) => self.start_manager(manager),
            Cure::StartAgent(node) => self.start_agent(node),
            Cure::Connect(node) => {
                self.note(|| format!("node {node} is back"));
                self.unblock(node);
            }
            Cure::Unpause(job) => self.unpause(&job),
        }
    }
}
