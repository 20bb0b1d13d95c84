//! Names that users and their tools rely on: labels, annotations, objects, ports, audiences.

/// API group of the workload and image kinds.
pub const GROUP: &str = "apps.kruise.io";

/// Namespace that the chart installs into unless told otherwise.
pub const DEFAULT_NAMESPACE: &str = "kruise-system";

/// Lease by which the replicas of the manager elect their leader.
pub const LEASE: &str = "kruise-manager";
/// Annotation of the Lease: number of the leadership, written in the very request that takes it.
pub const LEASE_EPOCH: &str = "kruise.io/epoch";
/// Annotation of the Lease: gRPC address (`IP:port`) of the leader.
pub const LEASE_ADDRESS: &str = "kruise.io/leader-address";

/// Secret with the certificate authority and the serving key of the manager.
pub const TRUST_SECRET: &str = "kruise-webhook-certs";
/// ConfigMap with the trust bundle that agents mount.
pub const TRUST_CONFIGMAP: &str = "kruise-manager-ca";
/// Key of the trust bundle in [`TRUST_CONFIGMAP`], PEM, possibly several certificates.
pub const TRUST_BUNDLE_KEY: &str = "ca.crt";

/// ServiceAccount of the node agents.
pub const AGENT_SERVICE_ACCOUNT: &str = "kruise-daemon";
/// ServiceAccount that `kruisectl` asks tokens for.
pub const VIEWER_SERVICE_ACCOUNT: &str = "kruise-viewer";
/// Service in front of the manager's gRPC port.
pub const MANAGER_SERVICE: &str = "kruise-manager";
/// Service in front of the manager's webhooks.
pub const WEBHOOK_SERVICE: &str = "kruise-webhook-service";
/// Name of the chart's MutatingWebhookConfiguration, as OpenKruise calls it.
pub const MUTATING_WEBHOOKS: &str = "kruise-mutating-webhook-configuration";
/// Name of the chart's ValidatingWebhookConfiguration, as OpenKruise calls it.
pub const VALIDATING_WEBHOOKS: &str = "kruise-validating-webhook-configuration";
/// TLS server name of the manager, whatever address is dialled.
pub const MANAGER_SERVER_NAME: &str = "kruise-manager.kruise-system.svc";

/// Audience of an agent's token.
pub const AGENT_AUDIENCE: &str = "kruise-manager";
/// Audience of a person's token for the inspection services.
pub const INSPECT_AUDIENCE: &str = "kruise-inspect";
/// API group of the virtual resources `agents` and `tasks` that inspection is authorised on.
pub const INSPECT_GROUP: &str = "inspect.kruise.io";

/// gRPC port of the manager.
pub const MANAGER_GRPC_PORT: u16 = 9877;

/// Annotation with the trace that an object is a part of, as W3C's `traceparent`. That of an ImagePullJob goes to the agents with each order.
pub const TRACEPARENT: &str = "apps.kruise.io/traceparent";
/// Annotation in the sandbox config of each pull that we make, as OpenKruise sets it.
pub const PULLED_BY_ANNOTATION: &str = "apps.kruise.io/pulling-image-by";
/// Value of [`PULLED_BY_ANNOTATION`].
pub const PULLED_BY_VALUE: &str = "kruise-daemon";
/// Finalizer that OpenKruise puts on its jobs. Never added here, removed where found.
pub const LEGACY_FINALIZER: &str = "apps.kruise.io/deletion-protection";
