//! The services that every gRPC server has: health, and reflection in both versions.

use tonic::service::Routes;
pub use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// Services of this server, as health and reflection name them.
const NAMES: [&str; 2] = [
    kruise_proto::dispatch::dispatch_service_server::SERVICE_NAME,
    kruise_proto::inspect::inspect_service_server::SERVICE_NAME,
];
/// What reflection lists beside our own.
const COMMON: [&str; 3] = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
];

/// Sets what the health service answers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Reporter {
    inner: HealthReporter,
}

impl Reporter {
    /// Sets the status of the server and of each of its services.
    pub async fn set_all(&self, status: ServingStatus) {
        for name in [""].into_iter().chain(NAMES) {
            self.inner.set_service_status(name, status).await;
        }
    }
}

/// Adds health and reflection to the routes.
///
/// # Panics
/// Never: the descriptors are part of the program, and a test reads them.
#[must_use]
pub fn common_services(routes: Routes) -> (Routes, Reporter) {
    let (reporter, health) = tonic_health::server::health_reporter();
    let reflection = || {
        let mut builder = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(kruise_proto::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET);
        for name in NAMES.into_iter().chain(COMMON) {
            builder = builder.with_service_name(name);
        }
        builder
    };
    let v1 = reflection().build_v1().expect("the descriptors are well-formed");
    let v1alpha = reflection()
        .build_v1alpha()
        .expect("the descriptors are well-formed");
    (
        routes.add_service(health).add_service(v1).add_service(v1alpha),
        Reporter { inner: reporter },
    )
}
