import { type Config, parseBoolean } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { decodeEnvFile, parseEnvFile } from '../kit/env-file.ts';
import type { Log } from '../log.ts';
import { apiServerSettings } from '../profiles/api-server.ts';
import { type Mapping, parseMapping } from '../profiles/yaml.ts';

/** What this relay's configuration says about the agent's API server. */
export interface ApiServerFacts {
  /** Empty when there is none: open access. Never logged. */
  key: string;
  /** Whether something says in words that it is off. */
  disabled: boolean;
}

/** Printable ASCII in one line. */
export const isPrintable = (text: string): boolean => /^[\x20-\x7e]*$/.test(text);

/**
 * Key and switch of the API server: agent configuration, `.env` of the agent home, environment (contract 01 §5.3).
 * A source that cannot be read is logged and counts as empty. Read anew each time: the agent may have changed them.
 */
export async function readApiServer(config: Config, host: Host | undefined, log: Log): Promise<ApiServerFacts> {
  const [mapping, file] = host
    ? await Promise.all([readAgentConfig(host, config.agentConfig, log), readEnv(host, log)])
    : [{}, {} as Record<string, string>];
  const key = file.API_SERVER_KEY?.trim() || config.apiServerKey || '';
  const enabled = file.API_SERVER_ENABLED?.trim() || config.apiServerEnabled;
  const settings = apiServerSettings(mapping, { API_SERVER_KEY: key });
  const usable = isPrintable(settings.key);
  if (!usable) log.warn('the API key has characters that no header can carry; pairing codes go without it');
  return {
    key: usable ? settings.key : '',
    // Either one switches it off for pairing, while a profile's row lets the agent configuration have the last word.
    disabled: settings.explicitlyEnabled === false || (enabled !== undefined && parseBoolean(enabled) === false),
  };
}

async function readAgentConfig({ files }: Host, path: string, log: Log): Promise<Mapping> {
  try {
    const parsed = parseMapping((await files.readText(path)) ?? '');
    if (parsed.ok) return parsed.mapping;
    log.warn(`the agent configuration is ${parsed.problem}`);
  } catch (error) {
    log.warn(`the agent configuration cannot be read: ${describeError(error)}`);
  }
  return {};
}

async function readEnv({ files, agentHome }: Host, log: Log): Promise<Record<string, string>> {
  try {
    const bytes = await files.read(`${agentHome}/.env`);
    return bytes ? parseEnvFile(decodeEnvFile(bytes)) : {};
  } catch (error) {
    log.warn(`the .env of the agent home cannot be read: ${describeError(error)}`);
    return {};
  }
}
