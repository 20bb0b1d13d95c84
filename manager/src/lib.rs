//! The manager: leader election, trust, identity and the listeners around the engine that hands out work to node agents.
//!
//! Two halves. The shell ([`leader`], [`kubeapi`], [`trust`], [`identity`], [`serve`], [`telemetry`]) knows nothing about image
//! pulls; the core ([`engine`], [`dispatch`], [`inspect`]) knows nothing about sockets, certificates or leases beyond the
//! guards that the shell hands to it. [`run`] is where they meet.

pub mod args;
pub mod check;
pub mod clock;
pub mod cloneset;
pub mod dispatch;
pub mod engine;
pub mod identity;
pub mod image_list;
pub mod inspect;
pub mod kubeapi;
pub mod launch;
pub mod leader;
pub mod restart;
pub mod run;
pub mod serve;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod trust;
pub mod webhook;
