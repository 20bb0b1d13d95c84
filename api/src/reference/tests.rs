use proptest::prelude::*;

use super::{ImageRef, ReferenceError};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn canonical(text: &str) -> String {
    ImageRef::parse(text).expect(text).canonical().to_owned()
}

#[test]
fn docker_names_are_made_whole() {
    assert_eq!(canonical("ubuntu"), "docker.io/library/ubuntu:latest");
    assert_eq!(canonical("ubuntu:20.04"), "docker.io/library/ubuntu:20.04");
    assert_eq!(
        canonical("docker.io/library/ubuntu:latest"),
        "docker.io/library/ubuntu:latest"
    );
    assert_eq!(
        canonical("index.docker.io/test/nginx:1.0"),
        "docker.io/test/nginx:1.0"
    );
    assert_eq!(canonical("test/nginx:1.0"), "docker.io/test/nginx:1.0");
    assert_eq!(canonical("reg:5000/my/image:v1"), "reg:5000/my/image:v1");
    assert_eq!(canonical("localhost/app"), "localhost/app:latest");
    assert_eq!(canonical("10.90.0.1:5000/app"), "10.90.0.1:5000/app:latest");
}

#[test]
fn a_digest_wins_over_a_tag() {
    let by_digest = format!("docker.io/library/x@{DIGEST}");
    assert_eq!(canonical(&format!("x@{DIGEST}")), by_digest);
    assert_eq!(canonical(&format!("x:tag@{DIGEST}")), by_digest);
    let parsed = ImageRef::parse(&by_digest).expect("valid");
    assert_eq!((parsed.tag(), parsed.digest()), (None, Some(DIGEST)));
}

#[test]
fn parts_can_be_read_back() {
    let parsed = ImageRef::parse("reg:5000/my/image:v1").expect("valid");
    assert_eq!(
        (parsed.host(), parsed.repository(), parsed.tag()),
        ("reg:5000", "my/image", Some("v1"))
    );
    assert_eq!(parsed.name(), "reg:5000/my/image");
    assert_eq!(
        ImageRef::parse("nginx").expect("valid").familiar(),
        "nginx:latest"
    );
}

#[test]
fn wrong_ones_say_what_is_wrong() {
    assert_eq!(ImageRef::parse(""), Err(ReferenceError::Empty));
    assert_eq!(
        ImageRef::parse("Nginx"),
        Err(ReferenceError::UpperCase("Nginx".into()))
    );
    for (text, part) in [
        ("nginx:", "the tag"),
        ("nginx:-1", "the tag"),
        ("nginx@sha256:abc", "the digest"),
        ("a//b", "the repository"),
        ("nginx latest", "the repository"),
        ("-.com/app", "the host"),
        ("a___b", "the repository"),
    ] {
        match ImageRef::parse(text) {
            Err(ReferenceError::Invalid { part: found, .. }) => assert_eq!(found, part, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    assert!(matches!(
        ImageRef::parse(&"a".repeat(600)),
        Err(ReferenceError::TooLong(600))
    ));
}

proptest! {
    #[test]
    fn never_panics_and_is_stable(text in ".{0,80}") {
        if let Ok(parsed) = ImageRef::parse(&text) {
            prop_assert_eq!(ImageRef::parse(parsed.canonical()).expect("canonical"), parsed);
        }
    }

    #[test]
    fn well_formed_ones_are_accepted(
        host in "([a-z0-9]{1,8}\\.[a-z]{2,3}(:[0-9]{2,5})?/)?",
        path in "[a-z0-9]{1,8}([._-][a-z0-9]{1,5})?(/[a-z0-9]{1,8})?",
        tag in "(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,20})?",
    ) {
        let text = format!("{host}{path}{tag}");
        prop_assert!(ImageRef::parse(&text).is_ok(), "{}", text);
    }
}

proptest! {
    /// The CRD's rule and the parser are two tellings of one grammar.
    #[test]
    fn the_pattern_of_the_crd_agrees(
        text in "[a-zA-Z.]{0,6}(:[0-9]{0,3})?/?[a-zA-Z0-9._/-]{0,10}(:[a-zA-Z0-9._-]{0,5})?(@(sha256|x):[0-9a-f]{30,34})?",
    ) {
        let pattern = regex::Regex::new(super::PATTERN).expect("valid");
        let parsed = ImageRef::parse(&text);
        if parsed.is_ok() {
            prop_assert!(pattern.is_match(&text), "parsed but not matched: {}", text);
        }
        // Of digests the pattern knows only the form, and it cannot see that a first component without dots is no host.
        if pattern.is_match(&text) && !text.contains('@') {
            prop_assert!(parsed.is_ok(), "matched but not parsed: {} {:?}", text, parsed);
        }
    }
}
