use super::*;

fn parse(key: &str, value: &str) -> Result<PullOptions, OptionError> {
    let other = ("app".to_owned(), "x".to_owned());
    PullOptions::parse(&BTreeMap::from([other, (key.to_owned(), value.to_owned())]))
}

#[test]
fn foreign_annotations_are_left_alone() {
    assert_eq!(parse("zebra.io/x", "y"), Ok(PullOptions::default()));
    assert_eq!(parse("pull.kruise.ioo/x", "y"), Ok(PullOptions::default()));
}

#[test]
fn a_slip_in_a_name_is_told() {
    let error = parse("pull.kruise.io/max-image-sise", "1Gi").expect_err("unknown");
    assert!(
        error
            .to_string()
            .contains("did you mean pull.kruise.io/max-image-size?"),
        "{error}"
    );
}

#[test]
fn values() {
    let options = |key, value| parse(key, value).expect("valid");
    assert_eq!(options(PRIORITY, "90").priority, Some(90));
    assert_eq!(options(MAX_SIZE, "800Mi").max_size, Some(800 << 20));
    assert_eq!(
        options(MIN_FREE, "10G").min_free,
        Some(MinFree::Bytes(10_000_000_000))
    );
    assert_eq!(options(MIN_FREE, "15%").min_free, Some(MinFree::Percent(15)));
    assert_eq!(options(PIN_FOR, "7d").pin_for, Some(Duration::from_secs(604_800)));
    assert_eq!(
        options(MIN_NODE_AGE, "90s").min_node_age,
        Some(Duration::from_secs(90))
    );
    assert!(options(DEFER_CORDONED, "true").defer_cordoned);
}

#[test]
fn what_is_not_accepted_is_named_with_what_would_be() {
    for (key, values) in [
        (PRIORITY, ["91", "-1", ""]),
        (MAX_SIZE, ["0", "big", "1.5Gi"]),
        (MIN_FREE, ["0%", "91%", "+5"]),
        (PIN_FOR, ["", "0s", "366d"]),
        (MIN_NODE_AGE, ["5", "ß", "1h30m"]),
        (DEFER_CORDONED, ["yes", "", "1"]),
        (WHEN_PODS_READY, ["", "a in b", "ä=1"]),
    ] {
        for value in values {
            let error = parse(key, value).expect_err(value).to_string();
            assert!(error.contains(key) && error.contains("accepted is"), "{error}");
        }
    }
}

#[test]
fn selectors_as_kubectl_takes_them() {
    let options = parse(WHEN_PODS_READY, "app=db, tier in (a, b),!canary,zone!=x,ready").expect("valid");
    let selector = options.when_pods_ready.expect("given");
    assert_eq!(
        selector.match_labels,
        Some(BTreeMap::from([("app".into(), "db".into())]))
    );
    let rules: Vec<_> = selector
        .match_expressions
        .expect("given")
        .into_iter()
        .map(|rule| (rule.key, rule.operator, rule.values.unwrap_or_default().join("+")))
        .collect();
    let wanted = [
        ("tier", "In", "a+b"),
        ("canary", "DoesNotExist", ""),
        ("zone", "NotIn", "x"),
        ("ready", "Exists", ""),
    ];
    let wanted: Vec<_> = wanted
        .iter()
        .map(|(key, operator, values)| ((*key).to_owned(), (*operator).to_owned(), (*values).to_owned()))
        .collect();
    assert_eq!(rules, wanted);
}
