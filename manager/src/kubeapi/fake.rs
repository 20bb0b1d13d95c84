//! An API server in this process for tests: objects by path, resource versions with conflicts, faults on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, Service};

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Answered with this status, nothing done.
    Refuse(u16),
    /// Done, and answered with this status all the same.
    ApplyThenFail(u16),
    /// Done, and never answered.
    ApplyThenHang,
    /// Nothing done, never answered.
    Hang,
}

type Responder = Box<dyn Fn(&Value) -> Value + Send>;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    log: Vec<String>,
    hang: bool,
    faults: Vec<(String, Fault)>,
    responders: BTreeMap<String, Responder>,
}

/// The server. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
}

impl FakeApi {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an object there, as somebody else would.
    pub(crate) fn put(&self, path: &str, object: Value) {
        let mut state = self.lock();
        state.store(path, object);
    }

    /// The object at a path.
    pub(crate) fn object(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(path).cloned()
    }

    /// Takes an object away, as somebody else would.
    pub(crate) fn remove(&self, path: &str) {
        self.lock().objects.remove(path);
    }

    /// From now on, whether nobody is answered.
    pub(crate) fn hang(&self, hang: bool) {
        self.lock().hang = hang;
    }

    /// The next request whose `METHOD /path` starts with `prefix` meets this fault.
    pub(crate) fn fail_next(&self, prefix: &str, fault: Fault) {
        self.lock().faults.push((prefix.to_owned(), fault));
    }

    /// Answers each POST to `path` (a review) by what `answer` makes of the body.
    pub(crate) fn respond(&self, path: &str, answer: impl Fn(&Value) -> Value + Send + 'static) {
        self.lock().responders.insert(path.to_owned(), Box::new(answer));
    }

    /// Every request so far, as `METHOD /path`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.lock().log.clone()
    }

    /// Every request so far that is not a read.
    pub(crate) fn writes(&self) -> Vec<String> {
        self.requests()
            .into_iter()
            .filter(|line| !line.starts_with("GET "))
            .collect()
    }
}

impl State {
    fn store(&mut self, path: &str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        self.objects.insert(path.to_owned(), object.clone());
        object
    }

    fn take_fault(&mut self, line: &str) -> Option<Fault> {
        if self.hang {
            return Some(Fault::Hang);
        }
        let at = self
            .faults
            .iter()
            .position(|(prefix, _)| line.starts_with(prefix.as_str()))?;
        Some(self.faults.remove(at).1)
    }

    fn handle(&mut self, method: &Method, path: &str, body: Value) -> (u16, Value) {
        match *method {
            Method::GET => match self.objects.get(path) {
                Some(object) => (200, object.clone()),
                None => failure(404, "NotFound"),
            },
            Method::POST => self.create(path, body),
            Method::PUT => self.replace(path, body),
            Method::PATCH => self.merge(path.strip_suffix("/status").unwrap_or(path), &body),
            _ => failure(405, "MethodNotAllowed"),
        }
    }

    fn create(&mut self, path: &str, body: Value) -> (u16, Value) {
        if let Some(answer) = self.responders.get(path) {
            return (201, answer(&body));
        }
        let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap_or_default());
        if self.objects.contains_key(&path) {
            return failure(409, "AlreadyExists");
        }
        (201, self.store(&path, body))
    }

    fn replace(&mut self, path: &str, body: Value) -> (u16, Value) {
        let Some(old) = self.objects.get(path) else {
            return failure(404, "NotFound");
        };
        let wanted = &body["metadata"]["resourceVersion"];
        if wanted.is_string() && *wanted != old["metadata"]["resourceVersion"] {
            return failure(409, "Conflict");
        }
        (200, self.store(path, body))
    }

    fn merge(&mut self, path: &str, patch: &Value) -> (u16, Value) {
        let Some(mut object) = self.objects.get(path).cloned() else {
            return failure(404, "NotFound");
        };
        json_patch::merge(&mut object, patch);
        self.replace(path, object)
    }
}

fn failure(code: u16, reason: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason}),
    )
}

impl Service<Request<Body>> for FakeApi {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await?;
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            let path = parts.uri.path();
            let line = format!("{} {path}", parts.method);
            let (fault, (code, answer)) = {
                let mut state = server.lock();
                state.log.push(line.clone());
                let fault = state.take_fault(&line);
                let answer = match fault {
                    Some(Fault::Refuse(code)) => failure(code, "Refused"),
                    Some(Fault::Hang) => failure(500, "NeverSeen"),
                    _ => state.handle(&parts.method, path, body),
                };
                (fault, answer)
            };
            let (code, answer) = match fault {
                Some(Fault::Hang | Fault::ApplyThenHang) => std::future::pending().await,
                Some(Fault::ApplyThenFail(code)) => failure(code, "FailedAfterwards"),
                _ => (code, answer),
            };
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = StatusCode::from_u16(code)?;
            Ok(response)
        })
    }
}
