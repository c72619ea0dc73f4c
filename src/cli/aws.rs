//! Which S3 endpoint a command speaks to, and as whom, found where every AWS tool looks: flags, then the environment, then the
//! profile in the shared files. What enters is flags and the environment; what leaves is an [`Endpoint`] that has sent nothing.

use std::path::PathBuf;
use std::time::Duration;

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_types::service_config::ServiceConfigKey;
use clap::{Args, ValueEnum};

use crate::app::system_clock;
use crate::backend::s3::credentials::Credentials;
use crate::client::{Endpoint, EndpointConfig};
use crate::config::Addressing;
use crate::telemetry::Metrics;

/// Where nothing names a region.
const REGION: &str = "us-east-1";

/// Longest time to connect, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time without an octet of an answer: what a gateway gives an entry by default, and room for what is before it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Whom to ask, and as whom.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Endpoint and credentials")]
pub(super) struct AwsArgs {
    /// The S3 endpoint, such as http://127.0.0.1:9000. Default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's
    /// endpoint_url, else AWS itself
    #[arg(long, value_name = "URL")]
    endpoint_url: Option<String>,
    /// The region to sign for. Default: AWS_REGION, AWS_DEFAULT_REGION, the profile's, else us-east-1
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// The profile of ~/.aws/config and ~/.aws/credentials. Default: AWS_PROFILE, else `default`
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Where the bucket's name goes: in the path, or before the host's name
    #[arg(long, value_enum, default_value_t, value_name = "STYLE")]
    addressing: Style,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Style {
    #[default]
    Path,
    Virtual,
}

/// The endpoint that flags, environment and profile name; at most `idle_connections_max` connections are kept while unused.
///
/// # Errors
/// In one line for people, where the endpoint's URL is none or the file of AWS_CA_BUNDLE cannot be read.
pub(super) async fn endpoint(args: &AwsArgs, env: &[(String, String)], idle_connections_max: usize) -> Result<Endpoint, String> {
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    if let Some(profile) = &args.profile {
        loader = loader.profile_name(profile);
    }
    if let Some(region) = &args.region {
        loader = loader.region(Region::new(region.clone()));
    }
    let found = loader.load().await;
    let region = found.region().map_or(REGION, |region| region.as_ref()).to_owned();
    let expiry = Metrics::new().backend("endpoint").credentials_expiry;
    let provider = found.credentials_provider().ok_or("there is no chain of credentials")?;
    let config = EndpointConfig {
        url: url(args, &found, &region),
        region,
        addressing: match args.addressing {
            Style::Path => Addressing::Path,
            Style::Virtual => Addressing::Virtual,
        },
        credentials: Credentials::provided(provider, system_clock, expiry),
        ca_file: variable(env, "AWS_CA_BUNDLE").map(PathBuf::from),
        connect_timeout: CONNECT_TIMEOUT,
        idle_timeout: IDLE_TIMEOUT,
        idle_connections_max,
    };
    Endpoint::new(config, system_clock)
}

fn url(args: &AwsArgs, found: &SdkConfig, region: &str) -> String {
    // The SDK's own rule for it: the service's variable, the general one, the profile's `services`, the profile.
    let key = ServiceConfigKey::builder().service_id("S3").env("AWS_ENDPOINT_URL").profile("endpoint_url").build();
    let configured = || found.service_config()?.load_config(key.ok()?);
    let url = args.endpoint_url.clone().or_else(configured);
    match url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
            format!("https://s3.{region}.{domain}")
        }
    }
}

fn variable<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    env.iter().find(|(n, value)| n == name && !value.is_empty()).map(|(_, value)| value.as_str())
}
