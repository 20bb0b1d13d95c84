//! One credential provider: a program that is asked for log-ins.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex as StdMutex, MutexGuard, PoisonError};
use std::time::Duration;

use kruise_api::reference::ImageRef;
use kruise_proto::dispatch::Credential;
use kruise_proto::login::{self, Entry};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::Mutex;

use super::config::{Provider, parse_duration};
use crate::clock::Clock;

/// As the kubelet has it.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Largest answer that is read.
const MAX_ANSWER: u64 = 1 << 20;
/// Most answers that are kept.
const MAX_KEPT: usize = 1_000;

/// A plug-in with what it has said.
pub(super) struct Plugin {
    provider: Provider,
    program: PathBuf,
    clock: Clock,
    timeout: Duration,
    kept: StdMutex<BTreeMap<String, Kept>>,
    /// It is asked once at a time; who waited finds the answer kept.
    asking: Mutex<()>,
}

struct Kept {
    until: Duration,
    entries: Vec<Entry>,
}

/// Why a plug-in gave nothing. None of them says what the plug-in wrote: it may hold secrets.
#[derive(Debug, thiserror::Error)]
pub(super) enum PluginError {
    #[error("cannot run {program}: {source}")]
    Run {
        program: PathBuf,
        source: std::io::Error,
    },
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    #[error("it ended with {0}; run it by hand to see why")]
    Status(std::process::ExitStatus),
    #[error("its answer is not a CredentialProviderResponse of {0}")]
    Answer(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    api_version: &'a str,
    kind: &'static str,
    image: &'a str,
}

// No Debug: it holds passwords.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    cache_key_type: CacheKey,
    #[serde(default)]
    cache_duration: Option<String>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Auth>>,
}

#[derive(Deserialize)]
struct Auth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// What an answer holds for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum CacheKey {
    #[default]
    Image,
    Registry,
    Global,
}

impl CacheKey {
    const ALL: [Self; 3] = [Self::Image, Self::Registry, Self::Global];

    fn of(self, image: &ImageRef) -> String {
        match self {
            Self::Image => format!("image {}", image.name()),
            Self::Registry => format!("registry {}", image.host()),
            Self::Global => "global".to_owned(),
        }
    }
}

impl Plugin {
    pub(super) fn new(provider: Provider, bin_dir: &Path, clock: Clock) -> Self {
        Self {
            program: bin_dir.join(&provider.name),
            provider,
            clock,
            timeout: TIMEOUT,
            kept: StdMutex::default(),
            asking: Mutex::default(),
        }
    }

    #[cfg(test)]
    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    pub(super) fn name(&self) -> &str {
        &self.provider.name
    }

    /// Whether it is to be asked about an image.
    pub(super) fn is_for(&self, image: &ImageRef) -> bool {
        let patterns = &self.provider.match_images;
        patterns
            .iter()
            .any(|pattern| login::key_matches(&login::entry_key(pattern), image))
    }

    /// What it logs in with, kept from before or asked for now.
    pub(super) async fn credentials(&self, image: &ImageRef) -> Result<Vec<Credential>, PluginError> {
        if let Some(entries) = self.kept(image) {
            return Ok(login::matching(image, entries));
        }
        let _one = self.asking.lock().await;
        if let Some(entries) = self.kept(image) {
            return Ok(login::matching(image, entries));
        }
        let response = self.ask(image).await?;
        let entries: Vec<Entry> = (response.auth.into_iter().flatten())
            .map(|(key, auth)| Entry {
                key: login::entry_key(&key),
                credential: Credential {
                    username: auth.username,
                    password: auth.password,
                    ..Credential::default()
                },
            })
            .collect();
        let time = match response.cache_duration.as_deref() {
            Some(text) => parse_duration(text).unwrap_or_default(),
            None => self.provider.default_cache_duration,
        };
        self.keep(response.cache_key_type.of(image), time, &entries);
        Ok(login::matching(image, entries))
    }

    /// Forgets whatever answer this image would be given.
    pub(super) fn forget(&self, image: &ImageRef) {
        let mut kept = self.lock();
        for key in CacheKey::ALL {
            kept.remove(&key.of(image));
        }
    }

    fn kept(&self, image: &ImageRef) -> Option<Vec<Entry>> {
        let now = self.clock.now_mono();
        let mut kept = self.lock();
        kept.retain(|_, answer| answer.until > now);
        let keys = CacheKey::ALL.iter().map(|key| key.of(image));
        keys.filter_map(|key| kept.get(&key))
            .map(|answer| answer.entries.clone())
            .next()
    }

    fn keep(&self, key: String, time: Duration, entries: &[Entry]) {
        let mut kept = self.lock();
        if time.is_zero() || kept.len() >= MAX_KEPT {
            return;
        }
        let until = self.clock.now_mono().saturating_add(time);
        let entries = entries.to_vec();
        kept.insert(key, Kept { until, entries });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ask(&self, image: &ImageRef) -> Result<Response, PluginError> {
        let api_version = self.provider.api_version.as_str();
        let wrong = || PluginError::Answer(api_version.to_owned());
        let request = Request {
            api_version,
            kind: "CredentialProviderRequest",
            image: image.name(),
        };
        let request = serde_json::to_vec(&request).map_err(|_| wrong())?;
        let answer = tokio::time::timeout(self.timeout, self.run(&request))
            .await
            .map_err(|_| PluginError::Late(self.timeout))??;
        let response: Response = serde_json::from_slice(&answer).map_err(|_| wrong())?;
        if response.kind != "CredentialProviderResponse" || response.api_version != api_version {
            return Err(wrong());
        }
        Ok(response)
    }

    /// Runs the program; it is killed when the future is dropped.
    async fn run(&self, request: &[u8]) -> Result<Vec<u8>, PluginError> {
        let failed = |source| PluginError::Run {
            program: self.program.clone(),
            source,
        };
        let variables = self.provider.env.iter();
        let mut child = Command::new(&self.program)
            .args(&self.provider.args)
            .envs(variables.map(|variable| (&variable.name, &variable.value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        if let Some(mut input) = child.stdin.take() {
            // A program that does not read its input may still know the answer.
            let _ = input.write_all(request).await;
        }
        let mut answer = Vec::new();
        if let Some(output) = child.stdout.take() {
            output
                .take(MAX_ANSWER)
                .read_to_end(&mut answer)
                .await
                .map_err(failed)?;
        }
        let status = child.wait().await.map_err(failed)?;
        if !status.success() {
            return Err(PluginError::Status(status));
        }
        Ok(answer)
    }
}
