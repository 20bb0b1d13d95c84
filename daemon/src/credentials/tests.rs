//! Plug-ins that are shell scripts, and docker configurations.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use super::*;

const CONFIG: &str = "
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: plugin
  matchImages: ['*.example.com', 'reg.io:5000/team']
  defaultCacheDuration: 1h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env:
  - name: REGION
    value: north
";

/// A folder with a plug-in that does as the script says. Each run leaves a line in `asked`.
fn plugin(script: &str) -> (tempfile::TempDir, Plugin) {
    let folder = tempfile::tempdir().expect("a folder");
    let asked = folder.path().join("asked");
    let text = format!(
        "read request\necho \"$1 $REGION $request\" >> {}\n{script}\n",
        asked.display()
    );
    // The program is the shell itself: one that was written just now may still be open in a process that another test starts.
    symlink("/bin/sh", folder.path().join("plugin")).expect("linked");
    let path = folder.path().join("script");
    fs::write(&path, text).expect("written");
    let config = Config::parse(CONFIG).expect("valid");
    let mut provider = config.providers[0].clone();
    provider.args.insert(0, path.display().to_string());
    let plugin = Plugin::new(provider, folder.path(), Clock::boot());
    (folder, plugin)
}

fn answer(more: &str) -> String {
    format!(
        r#"echo '{{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse",{more}"auth":{{"*.example.com":{{"username":"u","password":"hunter2"}}}}}}'"#
    )
}

fn image(text: &str) -> ImageRef {
    ImageRef::parse(text).expect("an image")
}

async fn users(plugin: &Plugin, name: &str) -> Vec<String> {
    let found = plugin.credentials(&image(name)).await.expect("an answer");
    found.into_iter().map(|credential| credential.username).collect()
}

fn asked(folder: &tempfile::TempDir) -> Vec<String> {
    let text = fs::read_to_string(folder.path().join("asked")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_plug_in_is_asked_as_the_kubelet_asks() {
    let (folder, plugin) = plugin(&answer(""));
    assert_eq!(users(&plugin, "a.example.com/team/app:1").await, ["u"]);
    let want = r#"get north {"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderRequest","image":"a.example.com/team/app"}"#;
    assert_eq!(asked(&folder), [want]);
    assert!(plugin.is_for(&image("reg.io:5000/team/app:1")));
    assert!(!plugin.is_for(&image("reg.io:5000/other:1")) && !plugin.is_for(&image("example.com/app:1")));
}

#[tokio::test]
async fn answers_are_kept_for_what_they_are_for() {
    for (kind, count) in [
        ("Image", [1, 2, 3]),
        ("Registry", [1, 1, 2]),
        ("Global", [1, 1, 1]),
    ] {
        let (folder, plugin) = plugin(&answer(&format!(r#""cacheKeyType":"{kind}","#)));
        let images = ["a.example.com/x:1", "a.example.com/y:1", "b.example.com/x:1"];
        for (name, want) in images.iter().zip(count) {
            assert_eq!(users(&plugin, name).await, ["u"], "{kind}");
            assert_eq!(asked(&folder).len(), want, "{kind} {name}");
        }
        plugin.forget(&image(images[0]));
        users(&plugin, images[0]).await;
        assert_eq!(
            asked(&folder).len(),
            count[2] + 1,
            "{kind}: asked again once refused"
        );
    }
}

#[tokio::test]
async fn an_answer_for_no_time_is_not_kept() {
    let (folder, plugin) = plugin(&answer(r#""cacheDuration":"0s","#));
    users(&plugin, "a.example.com/x:1").await;
    users(&plugin, "a.example.com/x:1").await;
    assert_eq!(asked(&folder).len(), 2);
}

#[tokio::test]
async fn many_who_ask_at_once_start_one_program() {
    let (folder, plugin) = plugin(&format!("sleep 0.2; {}", answer("")));
    let asks = (0..5).map(|_| users(&plugin, "a.example.com/x:1"));
    let all = futures::future::join_all(asks).await;
    assert!(all.iter().all(|users| users == &["u"]));
    assert_eq!(asked(&folder).len(), 1);
}

#[tokio::test]
async fn a_plug_in_that_fails_gives_nothing_and_shows_nothing() {
    for (script, want) in [
        ("echo hunter2 >&2; echo hunter2; exit 3", "exit status: 3"),
        ("echo hunter2", "not a CredentialProviderResponse"),
        (
            "echo '{\"apiVersion\":\"v1\",\"kind\":\"CredentialProviderResponse\"}'",
            "not a CredentialProviderResponse",
        ),
        ("sleep 60", "no answer within 0 s"),
    ] {
        let (_folder, plugin) = plugin(script);
        let plugin = plugin.with_timeout(Duration::from_millis(500));
        let error = plugin
            .credentials(&image("a.example.com/x:1"))
            .await
            .expect_err("no answer");
        let text = format!("{error} {error:?}");
        assert!(text.contains(want) && !text.contains("hunter2"), "{text}");
        let keychain = Keychain::of(vec![plugin], Vec::new());
        assert!(keychain.credentials(&image("a.example.com/x:1")).await.is_empty());
    }
}

#[tokio::test]
async fn plug_ins_come_before_the_docker_configuration_which_is_read_each_time() {
    let (folder, plugin) = plugin(&answer(""));
    let path = folder.path().join("config.json");
    let keychain = Keychain::of(vec![plugin], vec![folder.path().join("none.json"), path.clone()]);
    let users = async |name: &str| -> Vec<String> {
        let found = keychain.credentials(&image(name)).await;
        found.into_iter().map(|credential| credential.username).collect()
    };
    assert_eq!(users("a.example.com/x:1").await, ["u"]);
    let config = r#"{"auths":{"a.example.com":{"username":"docker","password":"p"}}}"#;
    fs::write(&path, config).expect("written");
    assert_eq!(users("a.example.com/x:1").await, ["u", "docker"]);
    assert_eq!(users("other.io/x:1").await, Vec::<String>::new());
    fs::write(&path, "hunter2").expect("written");
    assert_eq!(users("a.example.com/x:1").await, ["u"]);
}

#[test]
fn configurations_that_the_kubelet_would_refuse() {
    let cases = [
        ("kubelet.config.k8s.io/v1\n", "example.com/v1\n", "apiVersion"),
        (
            "name: plugin",
            "name: ../plugin",
            "program in the plug-ins' folder",
        ),
        (
            "defaultCacheDuration: 1h",
            "defaultCacheDuration: soon",
            "no time",
        ),
        (
            "matchImages: ['*.example.com', 'reg.io:5000/team']",
            "matchImages: []",
            "never be asked",
        ),
        (
            "apiVersion: credentialprovider.kubelet.k8s.io/v1",
            "apiVersion: v1",
            "credentialprovider.kubelet.k8s.io/v1",
        ),
        ("args: [get]", "tokenAttributes: {}", "no pod"),
    ];
    for (from, to, want) in cases {
        let error = Config::parse(&CONFIG.replace(from, to)).expect_err(to);
        assert!(error.contains(want), "{error}");
    }
    assert!(Config::parse("{}").is_err());
    assert!(matches!(
        Keychain::open(Some(Path::new("/x")), None),
        Err(ConfigError::Half)
    ));
    let error =
        Keychain::open(Some(Path::new("/nonexistent")), Some(Path::new("/x"))).expect_err("not there");
    assert!(error.to_string().contains("/nonexistent"));
}
