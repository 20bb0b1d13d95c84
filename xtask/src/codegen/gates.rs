//! The page of feature gates.

use kruise_api::features::{GATES, Stage, Standing};

use super::page_head;

pub(super) fn page() -> String {
    let mut page = page_head("Feature gates", "`kruise_api::features`");
    page.push_str(
        "Given as `--feature-gates=A=true,B=false` to the manager and the agents, or by the chart's value `featureGates`. \
         `AllAlpha` and `AllBeta` stand for all gates of their stage that switch something. A name that is not in this list \
         is refused, and the nearest one is named.\n\n\
         | Gate | Stage | Default | Here |\n|---|---|---|---|\n",
    );
    for gate in GATES {
        let stage = match gate.stage {
            Stage::Alpha => "alpha",
            Stage::Beta => "beta",
        };
        let standing = match gate.standing {
            Standing::Built => "switches the feature",
            Standing::Inert => "accepted, does nothing",
            Standing::Absent => "belongs to a feature that is not in this version: `true` is refused",
        };
        page.push_str(&format!(
            "| {} | {stage} | {} | {standing} |\n",
            gate.name, gate.default
        ));
    }
    page
}
