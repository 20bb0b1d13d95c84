//! Types of the `apps.kruise.io` resources, the names that users rely on, defaults and validation.
//!
//! Pure data and pure functions: nothing here knows a client, a clock or a runtime. The CRDs of the chart are generated from
//! these types ([`crd`]).

#![warn(missing_docs)]

pub mod admission;
pub mod clone_set;
pub mod container_recreate_request;
pub mod crd;
pub mod features;
pub mod ids;
pub mod image_list_pull_job;
pub mod image_pull_job;
pub mod intstr;
pub mod names;
pub mod nearest;
pub mod node_image;
pub mod quantity;
pub mod reference;
pub mod strict;
pub mod structural;
