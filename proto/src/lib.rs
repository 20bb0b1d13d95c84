//! The gRPC contracts between the manager, the node agents and people.
//!
//! The contracts themselves, with their rules in prose, are the `.proto` files beside this crate; `gen` holds the bindings
//! made from them by `cargo xtask codegen`. [`convert`] turns messages into the planner's types and back,
//! [`login`] turns docker configurations into credentials, and [`clone_set`] tells a plan.

#![warn(missing_docs)]

pub mod clone_set;
pub mod convert;
pub mod login;
pub mod redact;
pub mod restart;

/// Contracts as generated: `kruise.<service>.v1` becomes `kruise::<service>::v1`.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    unreachable_pub,
    missing_debug_implementations
)]
mod kruise {
    pub mod task {
        pub mod v1 {
            include!("gen/kruise.task.v1.rs");
        }
    }
    pub mod dispatch {
        pub mod v1 {
            include!("gen/kruise.dispatch.v1.rs");
        }
    }
    pub mod inspect {
        pub mod v1 {
            include!("gen/kruise.inspect.v1.rs");
        }
    }
    pub mod node {
        pub mod v1 {
            include!("gen/kruise.node.v1.rs");
        }
    }
}

pub use kruise::dispatch::v1 as dispatch;
pub use kruise::inspect::v1 as inspect;
pub use kruise::node::v1 as node;
pub use kruise::task::v1 as task;

/// Descriptors of all contracts with what they import, for the reflection services.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/descriptors.bin");
