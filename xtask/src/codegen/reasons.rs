//! The page of reasons why pulls fail.

use kruise_planner::node::reason::{Retry, facts};
use kruise_planner::task::Reason;

use super::{cell, page_head};

pub(super) fn page() -> String {
    let mut page = page_head("Why pulls fail", "`kruise_planner::node::reason`");
    page.push_str(
        "Each failed attempt has one of these reasons. They are in the job's `failures` and messages, in `kruisectl tasks`, and as label \
         `reason` in metrics. They come from a table of the runtimes' texts, because CRI passes on nothing else: tried with containerd 1.6.20 and 2.2.9, \
         read in the sources of 1.7 and of CRI-O. The message beside the reason has the runtime's own words, without log-ins and query strings.\n\n\
         | Reason | Meaning | Tried again | What to do |\n|---|---|---|---|\n",
    );
    for reason in Reason::ALL {
        let facts = facts(reason);
        let meaning = cell(facts.meaning);
        let advice = cell(facts.advice);
        page.push_str(&format!(
            "| {reason} | {meaning} | {} | {advice} |\n",
            again(facts.retry)
        ));
    }
    page.push_str(
        "\n\"Counted\" means against `backoffLimit`. Between attempts nothing is held: neither one of the node's slots nor the place of \
         another pull. The job's deadline ends a task in any case.\n",
    );
    page
}

fn again(retry: Retry) -> &'static str {
    match retry {
        Retry::Never => "no",
        Retry::Counted => "after 1, 2, 4 … 30 s; counted",
        Retry::Slowly => "after 30 s and more; counted",
        Retry::FreeWhileGrowing => "after 1, 2, 4 … 30 s; not counted while bytes came",
        Retry::FreeAtFirst => "after a second; not counted the first ten times",
        Retry::FreeIfGuarded => {
            "after 30 s and more; not counted where the job names a space to be left free, so it waits until its deadline"
        }
    }
}
