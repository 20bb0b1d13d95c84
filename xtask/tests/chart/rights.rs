//! `docs/rights.md`: what each account may do, told from the rendered chart.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use super::{list, objects, of_kind, root, texts};

const PAGE: &str = "docs/rights.md";
const ACCOUNTS: [&str; 3] = ["kruise-manager", "kruise-daemon", "kruise-viewer"];

const HEAD: &str = "# Rights of the accounts

Every rule that the chart binds to its accounts, rendered with its default values. A test (`xtask/tests/chart/rights.rs`) fails when this page says anything
else; `KRUISE_UPDATE=1 cargo test --workspace --all-features --test chart rights` writes it anew.

[Security](security.md#rights) says why they are as they are; `kubectl auth can-i --list --as system:serviceaccount:kruise-system:kruise-manager` shows what is in
force, together with what every account may.
";

/// Rules by where they hold.
type Rights<'a> = BTreeMap<String, Vec<&'a Value>>;

#[test]
fn rights_in_the_docs_are_those_of_the_chart() {
    let Some(objects) = objects(&json!({})) else {
        return;
    };
    let page = page(&objects);
    let file = root().join(PAGE);
    if std::env::var_os("KRUISE_UPDATE").is_some() {
        fs::write(&file, &page).expect("written");
    }
    let written = fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(
        written, page,
        "{PAGE} is not what the chart says; write it anew with KRUISE_UPDATE=1"
    );
    assert!(page.contains("kruise-daemon`\n\nNothing"), "{page}");
}

fn page(objects: &[Value]) -> String {
    let mut page = HEAD.to_owned();
    for account in ACCOUNTS {
        let exists = of_kind(objects, "ServiceAccount").any(|object| object["metadata"]["name"] == account);
        assert!(exists, "there is no account {account}");
        page.truncate(page.trim_end().len());
        let _ = write!(page, "\n\n## `{account}`\n\n");
        let rights = rights(objects, account);
        if rights.is_empty() {
            page.push_str("Nothing: no binding names it.\n");
        }
        for (place, rules) in rights {
            let _ = write!(
                page,
                "### {place}\n\n| API group | Resources | Names | Verbs |\n|---|---|---|---|\n"
            );
            for rule in rules {
                page.push_str(&row(rule));
            }
            page.push('\n');
        }
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn rights<'a>(objects: &'a [Value], account: &str) -> Rights<'a> {
    let mut found = Rights::new();
    for binding in ["ClusterRoleBinding", "RoleBinding"]
        .into_iter()
        .flat_map(|kind| of_kind(objects, kind))
    {
        if !list(binding, "/subjects").any(|subject| subject["name"] == account) {
            continue;
        }
        let place = binding["metadata"]["namespace"]
            .as_str()
            .map_or("In the whole cluster".to_owned(), |namespace| {
                format!("In namespace `{namespace}`")
            });
        let reference = &binding["roleRef"];
        let kind = reference["kind"].as_str().expect("a kind");
        let role = of_kind(objects, kind)
            .find(|role| role["metadata"]["name"] == reference["name"])
            .unwrap_or_else(|| panic!("{binding} binds a role that is not there"));
        found.entry(place).or_default().extend(list(role, "/rules"));
    }
    found
}

fn row(rule: &Value) -> String {
    let group = texts(rule, "/apiGroups")
        .into_iter()
        .map(|group| {
            if group.is_empty() {
                "core".to_owned()
            } else {
                group
            }
        })
        .collect::<Vec<_>>()
        .join(", ");
    // Rules about paths of the API server have no group.
    let group = if group.is_empty() { "(paths)" } else { &group };
    let mut resources: Vec<_> = texts(rule, "/resources").into_iter().collect();
    resources.extend(texts(rule, "/nonResourceURLs"));
    let names = texts(rule, "/resourceNames").into_iter().collect::<Vec<_>>();
    let verbs = texts(rule, "/verbs").into_iter().collect::<Vec<_>>();
    format!(
        "| {group} | {} | {} | {} |\n",
        resources.join(", "),
        if names.is_empty() {
            "all".to_owned()
        } else {
            names.join(", ")
        },
        verbs.join(", ")
    )
}
