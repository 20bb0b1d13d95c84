//! Decisions about NodeImages: which of their tags are requests, what their status says, which tags have served their time.
//!
//! A tag that no ImagePullJob owns is a request of its own. It is carried out as a job of one node, with the same window, retries and journal, and answered in the
//! status of its NodeImage under the same version. [`requests`] makes those jobs, [`plan`] turns what came of them into a status.

mod plan;
mod requests;

pub use plan::{Answer, NodeImagePlan, NodeImageSnapshot, TagEvent, plan};
pub use requests::{Request, requests};

#[cfg(test)]
mod tests;
