use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::*;

fn secret(kind: &str, key: &str, content: &str) -> Secret {
    Secret {
        type_: Some(kind.to_owned()),
        data: Some([(key.to_owned(), ByteString(content.as_bytes().to_vec()))].into()),
        ..Secret::default()
    }
}

fn config(auths: &Value) -> Secret {
    secret(
        "kubernetes.io/dockerconfigjson",
        ".dockerconfigjson",
        &json!({ "auths": auths }).to_string(),
    )
}

/// A secret with one entry per server, whose user is the server's place in the list.
fn servers(servers: &[&str]) -> Secret {
    let auths: serde_json::Map<String, Value> = servers
        .iter()
        .enumerate()
        .map(|(at, server)| {
            (
                (*server).to_owned(),
                json!({"username": at.to_string(), "password": "p"}),
            )
        })
        .collect();
    config(&Value::Object(auths))
}

fn users(image: &str, secrets: &[Secret]) -> Vec<String> {
    let image = ImageRef::parse(image).expect("a valid image");
    let secrets = secrets.iter().map(|secret| ("s", secret));
    let found = matching(&image, secrets).expect("usable secrets");
    found.into_iter().map(|credential| credential.username).collect()
}

#[test]
fn table_of_keys() {
    for (server, image, fits) in [
        ("reg.example.com", "reg.example.com/team/app:1", true),
        ("https://reg.example.com", "reg.example.com/team/app:1", true),
        ("https://reg.example.com/v2/", "reg.example.com/team/app:1", true),
        ("reg.example.com/team", "reg.example.com/team/app:1", true),
        ("reg.example.com/other", "reg.example.com/team/app:1", false),
        ("reg.example.com:5000", "reg.example.com/team/app:1", false),
        ("reg.example.com:5000", "reg.example.com:5000/team/app:1", true),
        ("*.example.com", "reg.example.com/team/app:1", true),
        ("*.example.com", "a.b.example.com/team/app:1", false),
        ("r?g.ex*.com", "reg.example.com/team/app:1", true),
        ("*.com", "reg.example.com/team/app:1", false),
        ("docker.io", "nginx", true),
        ("https://index.docker.io/v1/", "nginx:1.25", true),
        ("index.docker.io", "docker.io/team/app", true),
        ("index.docker.io", "quay.io/team/app", false),
    ] {
        assert_eq!(
            !users(image, &[servers(&[server])]).is_empty(),
            fits,
            "{server} for {image}"
        );
    }
}

#[test]
fn more_specific_first_then_in_the_order_of_the_secrets() {
    let secrets = [
        servers(&["reg.example.com", "reg.example.com/team"]),
        servers(&["reg.example.com/team"]),
    ];
    assert_eq!(users("reg.example.com/team/app", &secrets), ["1", "0", "0"]);
    // Docker Hub's other name counts only when nothing else fits.
    assert_eq!(
        users("nginx", &[servers(&["docker.io", "https://index.docker.io/v1/"])]),
        ["0"]
    );
}

#[test]
fn all_fields_travel_and_auth_wins() {
    let image = ImageRef::parse("reg.example.com/app").expect("valid");
    // "me:pa:ss", without its padding.
    let secret = config(&json!({
        "reg.example.com": {"username": "x", "password": "y", "auth": "bWU6cGE6c3M", "identitytoken": "i", "registrytoken": "r"}
    }));
    let found = matching(&image, [("s", &secret)]).expect("usable");
    let wanted = Credential {
        username: "me".into(),
        password: "pa:ss".into(),
        identity_token: "i".into(),
        registry_token: "r".into(),
    };
    assert!(found == [wanted]);
}

#[test]
fn the_old_format_has_no_auths_level() {
    let old = secret(
        "kubernetes.io/dockercfg",
        ".dockercfg",
        r#"{"reg.example.com": {"username": "old"}}"#,
    );
    assert_eq!(users("reg.example.com/app", &[old]), ["old"]);
}

#[test]
fn a_secret_that_cannot_be_used_is_named_and_not_shown() {
    let image = ImageRef::parse("reg.example.com/app").expect("valid");
    let problem = |secret: &Secret| {
        matching(&image, [("pull", secret)])
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        problem(&secret("Opaque", "x", "hunter2")),
        "secret \"pull\" has type \"Opaque\"; accepted are kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg"
    );
    assert_eq!(
        problem(&secret("kubernetes.io/dockercfg", "x", "hunter2")),
        "secret \"pull\" has no key \".dockercfg\""
    );
    for broken in [
        "hunter2",
        r#"{"auths": {"reg.example.com": {"auth": "%%%"}}}"#,
        r#"{"auths": {"a": {"auth": "aGk="}}}"#,
    ] {
        assert_eq!(
            problem(&secret(
                "kubernetes.io/dockerconfigjson",
                ".dockerconfigjson",
                broken
            )),
            "key \".dockerconfigjson\" of secret \"pull\" is not a docker configuration",
            "{broken}"
        );
    }
}
