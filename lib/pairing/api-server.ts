import { type Config, parseBoolean } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { decodeEnvFile, parseEnvFile } from '../kit/env-file.ts';
import { isPrintable } from '../kit/text.ts';
import type { Mapping } from '../kit/yaml.ts';
import type { Log } from '../log.ts';
import { apiServerSettings } from '../profiles/api-server.ts';

/** The agent's API server as configured on this machine. */
export interface ApiServerState {
  /** Empty means open access. Never logged. */
  key: string;
  /** True if a source disables it explicitly. */
  disabled: boolean;
}

/**
 * Reads the key and the switch of the API server from the agent configuration, the agent home's `.env` and the environment
 * (contract 01 §5.3). An unreadable source is logged and counts as empty. Not cached, since the agent may change them.
 */
export async function readApiServer(config: Config, host: Host | undefined, log: Log): Promise<ApiServerState> {
  const [mapping, file] = host
    ? await Promise.all([readAgentConfig(host, config.agentConfig, log), readEnv(host, log)])
    : [{}, {} as Record<string, string>];
  const key = file.API_SERVER_KEY?.trim() || config.apiServerKey || '';
  const enabled = file.API_SERVER_ENABLED?.trim() || config.apiServerEnabled;
  const settings = apiServerSettings(mapping, { API_SERVER_KEY: key });
  const usable = isPrintable(settings.key);
  if (!usable) log.warn('the API key has characters that a header cannot carry; pairing codes are made without it');
  return {
    key: usable ? settings.key : '',
    // For pairing, either source disables it; in a profile's row, the agent configuration takes precedence.
    disabled: settings.explicitlyEnabled === false || (enabled !== undefined && parseBoolean(enabled) === false),
  };
}

async function readAgentConfig({ files, yaml }: Host, path: string, log: Log): Promise<Mapping> {
  try {
    const parsed = await yaml.parseMapping((await files.readText(path)) ?? '');
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
