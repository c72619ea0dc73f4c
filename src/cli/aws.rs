//! Which S3 endpoint a command speaks to, and as whom, found where every AWS tool looks: flags, then the environment, then the
//! profile in the shared files. What enters is flags and the environment; what leaves is an [`Endpoint`] that has sent nothing.

use std::path::PathBuf;
use std::time::Duration;

use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_types::os_shim_internal::{Env, Fs};
use aws_types::service_config::ServiceConfigKey;
use clap::{Args, ValueEnum};

use crate::app::system_clock;
use crate::backend::s3::credentials::Credentials;
use crate::client::error::chain;
use crate::client::{Endpoint, EndpointConfig};
use crate::config::Addressing;
use crate::telemetry::Metrics;

/// Where nothing names a region.
const REGION: &str = "us-east-1";

/// Longest time to connect, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest time without an octet of an answer: what a gateway gives an entry by default, and room for what is before it.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Most that is said of why there are no credentials, in characters.
const CAUSE_CHARACTERS_MAX: usize = 160;

/// Whom to ask, and as whom.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Endpoint and credentials")]
pub(super) struct AwsArgs {
    /// The S3 endpoint, such as http://127.0.0.1:9000, or http://HOST/s3 where S3 is below a path. Default:
    /// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the profile's endpoint_url, else AWS itself
    #[arg(long, value_name = "URL")]
    endpoint_url: Option<String>,
    /// The region to sign for. Default: AWS_REGION, AWS_DEFAULT_REGION, the profile's, else us-east-1
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// The profile of ~/.aws/config and ~/.aws/credentials, whose keys go before those of the environment. Default:
    /// AWS_PROFILE, else `default`
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
/// In one line for people, where the endpoint's URL is none, `--profile` names none or the file of AWS_CA_BUNDLE cannot be read.
pub(super) async fn endpoint(args: &AwsArgs, env: &[(String, String)], idle_connections_max: usize) -> Result<Endpoint, String> {
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    if let Some(profile) = &args.profile {
        check_profile(profile).await?;
        // As in boto3 and the AWS CLI: who names a profile means its keys, not those of the environment.
        let keys = ProfileFileCredentialsProvider::builder().profile_name(profile).build();
        loader = loader.profile_name(profile).credentials_provider(keys);
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

async fn check_profile(name: &str) -> Result<(), String> {
    let known = aws_config::profile::load(&Fs::real(), &Env::real(), &Default::default(), None).await;
    let known = known.map_err(|error| format!("--profile: the shared files cannot be read: {}", chain(&error)))?;
    match known.get_profile(name) {
        Some(_) => Ok(()),
        None => Err(format!("--profile: there is no profile `{name}` in ~/.aws/config or ~/.aws/credentials")),
    }
}

/// That there is nothing to sign with, and what to do about it. `why` is what the SDK says, which tells of every place where it
/// looked; only what is wrong with a profile, or with the one place that did answer, is the user's to mend.
pub(super) fn no_credentials(why: &str) -> String {
    let why = match why.split_once("Attempted:") {
        Some((_, places)) => places.split("  ").find_map(|place| place.trim().strip_prefix("Profile: ")).unwrap_or_default(),
        None => why,
    };
    let why = why.trim().trim_start_matches("the credential provider was not enabled").trim_start_matches(": ");
    let why: String = why.trim().chars().take(CAUSE_CHARACTERS_MAX).collect();
    let what = "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with --profile";
    if why.is_empty() { what.to_owned() } else { format!("{what} ({why})") }
}

fn url(args: &AwsArgs, found: &SdkConfig, region: &str) -> String {
    // The SDK's own rule for it: the service's variable, the general one, the profile's `services`, the profile.
    let key = ServiceConfigKey::builder().service_id("S3").env("AWS_ENDPOINT_URL").profile("endpoint_url").build();
    let configured = || found.service_config()?.load_config(key.ok()?);
    // As in boto3, a variable that is empty is none.
    let url = args.endpoint_url.clone().or_else(|| configured().filter(|url| !url.is_empty()));
    url.unwrap_or_else(|| {
        let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        format!("https://s3.{region}.{domain}")
    })
}

fn variable<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    env.iter().find(|(n, value)| n == name && !value.is_empty()).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credentials_is_a_short_line_that_says_what_to_set() {
        let nothing = "the credential provider was not enabled";
        let tour = |profile: &str| {
            format!(
                "{nothing}: no credentials found in chain. Attempted:   Environment: {nothing}: x   Profile: {nothing}{profile}   Imds: {nothing}"
            )
        };
        for (why, says) in [
            (tour(""), "--profile"),
            (tour(": profile `p` was not defined"), "--profile (profile `p` was not defined)"),
            (format!("{nothing}: profile `q` has none"), "--profile (profile `q` has none)"),
            ("the process failed".into(), "--profile (the process failed)"),
            ("x".repeat(5000), &format!("--profile ({})", "x".repeat(CAUSE_CHARACTERS_MAX))),
        ] {
            let line = no_credentials(&why);
            assert!(line.ends_with(says) && line.contains("AWS_ACCESS_KEY_ID"), "{line}");
        }
    }
}
