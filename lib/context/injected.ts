import { type Config, variables } from '../config.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { decodeEnvFile, parseEnvFile } from '../kit/env-file.ts';
import type { Log } from '../log.ts';

/** Text for the agent's system prompt: at most 4,000 characters, without user data, paths and secrets. */
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

const MAX_ENV = 64 * 1024;

export interface InjectedContextReader {
  /** Text for the agent's next system prompt. Never rejects: an unreadable file counts as absent. */
  read(): Promise<InjectedContext>;
}

/**
 * The relay's contribution to the agent's system prompt (contract 04 §8). On a host, the flags are read for each request
 * from the agent home's `.env`, then the environment; at the edge they are part of the configuration.
 */
export function createInjectedContext(deps: { host?: Host; config: Config; log: Log }): InjectedContextReader {
  const { host, config, log } = deps;
  /** Warnings logged so far: each is logged once rather than with every request. */
  const warned = new Set<string>();

  async function flags(): Promise<Flags> {
    if (!host) return config;
    const bytes = await unlessUnreadable(host.files.read(`${host.agentHome}/.env`, MAX_ENV)).catch(() => null);
    const env = { ...host.env, ...(bytes ? parseEnvFile(decodeEnvFile(bytes)) : {}) };
    const warn = (message: string) => {
      if (!warned.has(message)) log.warn(message);
      warned.add(message);
    };
    const read = FLAGS.map((flag) => [flag, variables[flag].read({ env, directories: config, warn })]);
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
