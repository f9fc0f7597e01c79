import { PROGRAMS } from '../mcp/programs.ts';
import type { KnownOption } from '../options.ts';

/** Values that `svc completion <shell> --values <kind>` looks up when they are asked for. */
export const LIVE = ['devices', 'messages', 'profiles', 'mcp'] as const;

export type Live = (typeof LIVE)[number];

/** Completes a value: words, files, or a look-up. No words: nothing does. */
export type Values = readonly string[] | '@files' | `@${Live}`;

const LOG_LEVELS = ['DEBUG', 'INFO', 'WARNING', 'ERROR'];
const ROLES = ['lan', 'tailscale', 'public'];
const SPEECH = ['openai_tts', 'elevenlabs_tts', 'xai_tts', 'stub'];
const REALTIME = ['openai_realtime', 'xai_realtime', 'stub'];

/** By option, or by command and option where commands differ. */
const OPTION_VALUES: Readonly<Record<string, Values>> = {
  '--approve': ['ask', 'never', 'always'],
  '--device': ['simulated'],
  '--for': ['claude', 'codex'],
  '--level': ['debug', 'info', 'warning', 'error'],
  '--log-level': LOG_LEVELS,
  '--master': ['on', 'off'],
  '--messages': ['on', 'off'],
  '--mode': ['auto', ...ROLES],
  '--prefer': ROLES,
  '--profile': '@profiles',
  '--surfacing': ['default', 'notification', 'inbox', 'session'],
  '--transport-hint': ['ws', 'wss'],
  'pair --ttl': ['1d', '7d', '30d', '90d', '1y', 'never'],
  'say --provider': SPEECH,
  'doctor --provider': SPEECH,
  'talk --provider': REALTIME,
  'mcp --name': '@mcp',
  'approve --name': '@mcp',
  'completion --values': LIVE,
};

/** By command, or by command and action: the first argument after it. */
const ARGUMENT_VALUES: Readonly<Record<string, Values>> = {
  'devices/rename': '@devices',
  'devices/extend': '@devices',
  'devices/reduce': '@devices',
  'devices/revoke': '@devices',
  'mcp/install': Object.keys(PROGRAMS),
  'mcp/revoke': '@mcp',
  'phone/cancel': '@messages',
  'profiles/enable': '@profiles',
};

const FILES = ['file', 'path', 'directory'];

/** Completion for the value of an option of the command `path`, such as `svc/pair`; undefined when it takes none. */
export function optionValues(path: string, flag: string, option: KnownOption): Values | undefined {
  if (!option.takesValue) return undefined;
  const own = OPTION_VALUES[`${path.split('/').at(-1)} ${flag}`] ?? OPTION_VALUES[flag];
  return own ?? (FILES.includes(option.placeholder) ? '@files' : []);
}

/** Completion for the first argument after `path`, such as `svc/devices/revoke`; undefined when nothing is known. */
export const argumentValues = (path: string): Values | undefined =>
  ARGUMENT_VALUES[path.split('/').slice(-2).join('/')];

/** As the scripts for bash and zsh hold them: `auto|lan`, `@devices`, or nothing. */
export const valuesText = (values: Values): string => (typeof values === 'string' ? values : values.join('|'));
