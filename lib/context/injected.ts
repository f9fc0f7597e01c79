import { type Config, variables } from '../config.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { decodeEnvFile, parseEnvFile } from '../kit/env-file.ts';
import type { Log } from '../log.ts';

/** A piece of text that the agent's system prompt gets. At most 4,000 characters; no user data, path or secret. */
export interface ContextBlock {
  name: 'media-sensitivity' | 'phone-platform';
  text: string;
}

export interface InjectedContext {
  enabled: boolean;
  blocks: ContextBlock[];
}

const MEDIA_SENSITIVITY: ContextBlock = {
  name: 'media-sensitivity',
  text: [
    'Images and other media that you show may be seen on a phone in public. When a medium may be private, intimate or a',
    'spoiler, mark it as sensitive, so that it stays covered until the user taps it: wrap the image in double bars, as in',
    '||![alt](path)||, or put one of the words nsfw, sensitive or spoiler into the alt text.',
  ].join('\n'),
};

const PHONE_PLATFORM: ContextBlock = {
  name: 'phone-platform',
  text: [
    'The user can be reached on their phone: use the send-message tool with the target "phone". Use it for what is timely,',
    'such as the end of a long task, a reminder that is due, or a question that holds up your work. Keep it concise.',
  ].join('\n'),
};

const FLAGS = ['agentContextEnabled', 'contextMediaSensitivity', 'contextPhonePlatform', 'phoneEnabled'] as const;
type Flags = Pick<Config, (typeof FLAGS)[number]>;

const ENV_CAP = 64 * 1024;

export interface InjectedContextReader {
  /** What the agent's system prompt gets when it is built next. Never fails: without a readable file there is none. */
  read(): Promise<InjectedContext>;
}

/**
 * What the relay adds to the agent's system prompt (contract 04 §8). On a host the flags are read anew each time, from
 * the agent home's `.env` over the environment; at the edge they are what the relay was configured with.
 */
export function createInjectedContext(parts: { host?: Host; config: Config; log: Log }): InjectedContextReader {
  const { host, config, log } = parts;
  /** Said once, not with every request. One warning for each flag at most. */
  const said = new Set<string>();

  async function flags(): Promise<Flags> {
    if (!host) return config;
    const bytes = await unlessUnreadable(host.files.read(`${host.agentHome}/.env`, ENV_CAP)).catch(() => null);
    const env = { ...host.env, ...(bytes ? parseEnvFile(decodeEnvFile(bytes)) : {}) };
    const warn = (message: string) => {
      if (!said.has(message)) log.warn(message);
      said.add(message);
    };
    const read = FLAGS.map((flag) => [flag, variables[flag].read({ env, places: config, warn })]);
    return Object.fromEntries(read) as Flags;
  }

  return {
    async read() {
      const {
        agentContextEnabled: enabled,
        contextMediaSensitivity,
        contextPhonePlatform,
        phoneEnabled,
      } = await flags();
      const blocks: ContextBlock[] = [];
      if (enabled && contextMediaSensitivity) blocks.push(MEDIA_SENSITIVITY);
      if (enabled && phoneEnabled && contextPhonePlatform) blocks.push(PHONE_PLATFORM);
      return { enabled, blocks };
    },
  };
}
