import type { CAC } from 'cac';
import { asHost, asHttpUrl, asPort, asText, flag, type Options, option } from './options.ts';
import { type CommandContext, UsageError } from './output.ts';

/** `svc relay start` (contract 01 §9.2, 07 §5.1). */
export function registerStart(program: CAC): void {
  program
    .command('start', 'run the relay in the foreground')
    .option('--host <address>', 'address to listen on (default 0.0.0.0)')
    .option('--port <n>', 'port to listen on (default 8767)')
    .option('--no-ssl', 'serve plain http and ws although a certificate is configured')
    .option('--shell <path>', 'absolute path of the shell for terminal sessions')
    .option('--webapi-url <url>', "the agent's API server (default http://localhost:8642)")
    .option('--log-level <level>', 'DEBUG, INFO, WARNING or ERROR (default INFO)')
    .option('--config <path>', 'agent configuration file (default <agent home>/config.yaml)')
    .option('--allow-insecure-api-key', 'accept the API key for voice over plain http (development only)')
    .option('--allow-insecure-api-bearer', 'the same')
    .option('--pairing-code <code>', 'register this pairing code (6 of A-Z 0-9) at start')
    .option('--secure-link', 'serve one pinned HTTPS origin (not in this version)')
    .option('--no-secure-link', 'do not, whatever the configuration says')
    .option('--secure-link-host <address>', 'address for Secure Link')
    .option('--secure-link-port <n>', 'port for Secure Link')
    .example((name) => `${name} start`)
    .example((name) => `${name} start --host 127.0.0.1 --port 9000 --log-level DEBUG`)
    .example((name) => `RELAY_SSL_CERT=cert.pem RELAY_SSL_KEY=key.pem ${name} start`)
    .action(start);
}

/** What the flags say, as the variables they stand for: a flag is the strongest place to set one. */
function overrides(options: Options): Record<string, string | undefined> {
  const shell = option(options, '--shell', asText);
  if (shell !== undefined && !shell.startsWith('/')) throw new UsageError('--shell must be an absolute path');
  const level = option(options, '--log-level', asText);
  if (level !== undefined && !/^(debug|info|warning|error)$/i.test(level)) {
    throw new UsageError('--log-level must be one of DEBUG, INFO, WARNING, ERROR');
  }
  const port = option(options, '--port', asPort);
  option(options, '--secure-link-host', asHost);
  option(options, '--secure-link-port', asPort);
  const insecure = flag(options, '--allow-insecure-api-key') || flag(options, '--allow-insecure-api-bearer');
  return {
    RELAY_HOST: option(options, '--host', asHost),
    RELAY_PORT: port === undefined ? undefined : String(port),
    RELAY_TERMINAL_SHELL: shell,
    RELAY_WEBAPI_URL: option(options, '--webapi-url', asHttpUrl),
    RELAY_LOG_LEVEL: level,
    RELAY_SVC_CONFIG: option(options, '--config', asText),
    RELAY_PAIRING_CODE: option(options, '--pairing-code', asText),
    RELAY_ALLOW_INSECURE_API_BEARER: insecure ? '1' : undefined,
  };
}

/** The relay itself is loaded only here: every other command works where it cannot be, and the doctor says why. */
async function start(options: Options, context: CommandContext): Promise<void> {
  const variables = overrides(options);
  await (await import('./start-run.ts')).runRelay(variables, options, context);
}
