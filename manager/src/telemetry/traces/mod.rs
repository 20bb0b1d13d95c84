//! Traces of updates, for a collector that speaks OTLP. Off unless an endpoint is given.
//!
//! All that happens for one update of a CloneSet is one trace: its admission, the writes of the controller, the pulls of agents, the restarts of
//! containers. Agents get the trace with their orders and give it back with what they report, so that a result finds its trace under another leader,
//! too. Only the manager exports.

mod parent;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor as _};

pub(crate) use parent::Parent;

/// For one request to the collector.
const EXPORT_TIME: Duration = Duration::from_secs(5);
/// For what is still there when the process ends.
const LAST_TIME: Duration = Duration::from_secs(2);

/// Something that took time, or happened.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// What it belongs to.
    pub(crate) parent: Parent,
    /// Where it is in its trace.
    pub(crate) place: Place,
    /// Kind of thing.
    pub(crate) name: Cow<'static, str>,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    /// What it is about.
    pub(crate) about: Vec<(&'static str, String)>,
    /// Why it failed, if it did.
    pub(crate) error: Option<String>,
}

/// Where a span is in its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The one that the others hang from.
    Root,
    /// Below it; the text tells it from the others.
    Below(String),
}

/// Where spans go. Cheap to clone; without an endpoint it drops everything.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<BatchSpanProcessor>>);

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Traces(on)" } else { "Traces(off)" })
    }
}

impl Traces {
    /// Exports to this endpoint, an URL. The exporter's own environment variables (`OTEL_EXPORTER_OTLP_HEADERS` and others) hold. Needs the runtime,
    /// and connects when there is something to send.
    ///
    /// # Errors
    /// If the endpoint is no URL, or an environment variable has no good value.
    pub fn to(endpoint: &str, instance: &str) -> Result<Self, ExporterBuildError> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIME)
            .build()?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        let resource = Resource::builder()
            .with_service_name("kruise-manager")
            .with_attributes([
                KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
                KeyValue::new("service.instance.id", instance.to_owned()),
            ])
            .build();
        processor.set_resource(&resource);
        Ok(Self(Some(Arc::new(processor))))
    }

    /// Whether anybody will see spans.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The trace of an update, if traces are on: working it out costs a hash of the template.
    pub(crate) fn of_update(&self, set_uid: Option<&str>, template: &serde_json::Value) -> Option<Parent> {
        let uid = set_uid.filter(|uid| !uid.is_empty() && self.is_on())?;
        Some(Parent::of_update(uid, template))
    }

    /// Sends a span some time soon. Never waits; drops it when the collector does not keep up.
    pub(crate) fn tell(&self, span: Span) {
        if let Some(processor) = &self.0 {
            processor.on_end(data(span));
        }
    }

    /// Sends what is left. Blocks for two seconds at most.
    pub(crate) fn close(&self) {
        if let Some(processor) = &self.0
            && let Err(error) = processor.shutdown_with_timeout(LAST_TIME)
        {
            tracing::debug!(%error, "the last spans may be lost");
        }
    }
}

fn data(span: Span) -> SpanData {
    let (id, above) = match &span.place {
        Place::Root => (span.parent.span, SpanId::INVALID),
        Place::Below(key) => (span.parent.child(key), SpanId::from_bytes(span.parent.span)),
    };
    let context = SpanContext::new(
        TraceId::from_bytes(span.parent.trace),
        SpanId::from_bytes(id),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    );
    let about = span.about.into_iter();
    SpanData {
        span_context: context,
        parent_span_id: above,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: span.name,
        start_time: SystemTime::from(span.start.min(span.end)),
        end_time: SystemTime::from(span.end),
        attributes: about.map(|(key, value)| KeyValue::new(key, value)).collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: span.error.map_or(Status::Unset, Status::error),
        instrumentation_scope: InstrumentationScope::builder("kruise-manager").build(),
    }
}
