//! Everything logged that can be logged.

use anyhow::Result;
use kruise_tests::product::{NAMESPACE, Product};

const WORKLOADS: [&str; 2] = ["deployment/kruise-controller-manager", "daemonset/kruise-daemon"];

/// Both programs at the highest level, until dropped.
pub(super) struct Debugging {
    product: Product,
    over: bool,
}

impl Debugging {
    pub(super) fn begin(product: &Product) -> Result<Self> {
        set(product, "KRUISE_LOG=trace")?;
        Ok(Self {
            product: product.clone(),
            over: false,
        })
    }

    /// Back to normal, with everything rolled out.
    pub(super) fn end(mut self) -> Result<()> {
        self.over = true;
        set(&self.product, "KRUISE_LOG-")
    }
}

impl Drop for Debugging {
    fn drop(&mut self) {
        if !self.over {
            // The test has failed already and says why.
            let _ = set(&self.product, "KRUISE_LOG-");
        }
    }
}

fn set(product: &Product, what: &str) -> Result<()> {
    let cluster = &product.cluster;
    for workload in WORKLOADS {
        cluster.kubectl(&["set", "env", "-n", NAMESPACE, workload, what])?;
    }
    for workload in WORKLOADS {
        cluster.kubectl(&[
            "rollout",
            "status",
            "-n",
            NAMESPACE,
            workload,
            "--timeout",
            "120s",
        ])?;
    }
    Ok(())
}
