import type { Command } from 'cac';
import { ACTIONS } from './actions.ts';

/** Export of a command's file: it adds options, examples and the action. */
export interface CommandFile {
  define(command: Command): void;
}

export interface CommandEntry {
  /** Name and arguments as cac reads them. */
  usage: string;
  /** One line for the program's help. */
  summary: string;
  alias?: string;
  /** The option that selects the relay or companion of a command. Messages repeat it (contract 11 §1). */
  target?: 'relay' | 'settings';
  /** Calls only the relay of this machine, so there is no `--relay`. */
  asksRelay?: true;
  /** Loads the command's file. The help of a program and `--version` do not need it. */
  load(): Promise<CommandFile>;
}

/** The word that selects a command. */
export const nameOf = ({ usage }: CommandEntry): string => usage.split(' ', 1)[0] as string;

/** Words for the first argument of a command. */
export const actionsOf = (entry: CommandEntry): readonly string[] =>
  (ACTIONS as Record<string, readonly string[]>)[nameOf(entry)] ?? [];

/** A program is a list of commands: `svc`, `svc-relay`, or a word after `svc`. */
export interface Program {
  summary: string;
  commands: CommandEntry[];
  examples: string[];
}

const start: CommandEntry = {
  usage: 'start',
  summary: 'run the relay in the foreground',
  load: () => import('./start.ts'),
};

const service: CommandEntry = {
  usage: 'service [action]',
  summary: "keep the relay running with this user's systemd: status, install or remove",
  load: () => import('./service.ts'),
};

const doctor: CommandEntry = {
  usage: 'doctor',
  summary: 'check this installation, the agent and the relay, and say how to fix what is wrong',
  target: 'relay',
  load: () => import('./doctor.ts'),
};

const backup: CommandEntry = {
  usage: 'backup <file>',
  summary: 'write the identity, pairings and settings of this relay to one file, encrypted with a passphrase',
  asksRelay: true,
  load: () => import('./backup.ts'),
};

const restore: CommandEntry = {
  usage: 'restore <file>',
  summary: 'restore the relay of a backup to this home',
  load: () => import('./restore.ts'),
};

const bugreport: CommandEntry = {
  usage: 'bugreport [file]',
  summary: 'write an archive without secrets for somebody who helps you',
  load: () => import('./bugreport.ts'),
};

const relayCommands: CommandEntry[] = [
  start,
  service,
  doctor,
  backup,
  restore,
  bugreport,
  {
    usage: 'secure-link [action]',
    summary: 'show, enable or disable Secure Link, the pinned HTTPS origin, or rotate its identity',
    asksRelay: true,
    load: () => import('./secure-link.ts'),
  },
  {
    usage: 'mirror [action]',
    summary: 'show, enable or disable the mirror of this relay at the edge',
    load: () => import('./mirror.ts'),
  },
  {
    usage: 'tenants [action] [url] [...settings]',
    summary: 'list, claim, show, set or release relays of other people at the edge',
    load: () => import('./tenants.ts'),
  },
  {
    usage: 'update-check',
    summary: 'ask the release feed whether a newer release exists',
    load: () => import('./update-check.ts'),
  },
  {
    usage: 'profiles [action] [...profiles]',
    summary: "list the agent's profiles, or enable the relay's plugin in them",
    load: () => import('./profiles.ts'),
  },
  {
    usage: 'compat [action]',
    summary: 'manage the startup hook that gives an older agent API server routes it lacks',
    load: () => import('./compat.ts'),
  },
  {
    usage: 'insecure-api-key [state]',
    summary: 'show or change whether voice accepts the API key over plain http',
    alias: 'insecure-api-bearer',
    asksRelay: true,
    load: () => import('./insecure-api-key.ts'),
  },
  {
    usage: 'voice-report',
    summary: 'show what conversations with the realtime agent used, and how their results were delivered',
    load: () => import('./voice-report.ts'),
  },
  {
    usage: 'dashboard-demo',
    summary: "serve a demo dashboard on this machine, to try the relay's plugin",
    load: () => import('./dashboard-demo.ts'),
  },
  {
    usage: 'operator-key [action]',
    summary: "show or replace the key that proves the operator to this machine's relay",
    asksRelay: true,
    load: () => import('./keys/operator-key.ts'),
  },
  {
    usage: 'qr-key [action]',
    summary: 'show or replace the key that signs pairing codes',
    asksRelay: true,
    load: () => import('./keys/qr-key.ts'),
  },
  {
    usage: 'drill',
    summary: 'start a separate relay, kill it again and again, and count losses',
    load: () => import('./drill.ts'),
  },
  {
    usage: 'uninstall',
    summary: 'remove service, completions, state, recordings and pictures, after asking',
    load: () => import('./uninstall.ts'),
  },
  {
    usage: 'operator-token',
    summary: 'print a short-lived token for the operator routes of a relay at the edge',
    load: () => import('./operator-token.ts'),
  },
];

const pair: CommandEntry = {
  usage: 'pair',
  summary: 'pair a phone or desktop: print a link and a QR code to scan',
  target: 'relay',
  load: () => import('./pair.ts'),
};

const devices: CommandEntry = {
  usage: 'devices [action] [device] [name]',
  summary: 'show the paired devices; watch them, or rename, extend, reduce or revoke one',
  target: 'relay',
  load: () => import('./devices.ts'),
};

const mcp: CommandEntry = {
  usage: 'mcp [action] [name]',
  summary: 'let other agents reach the phone: pair, install, list, revoke; alone, speaks MCP on stdin',
  asksRelay: true,
  load: () => import('./mcp.ts'),
};

const daily: CommandEntry[] = [
  {
    usage: 'status',
    summary: 'show on one screen whether everything works, and what to do next',
    target: 'relay',
    load: () => import('./status.ts'),
  },
  {
    usage: 'console',
    summary: "show where the operator's page is, and open it with --open",
    target: 'relay',
    load: () => import('./console.ts'),
  },
  {
    usage: 'logs',
    summary: "show the relay's log, and follow it with -f",
    target: 'relay',
    load: () => import('./logs.ts'),
  },
  {
    usage: 'up',
    summary: 'start the relay in the background, and wait until it is ready',
    load: () => import('./up.ts'),
  },
  { usage: 'stop', summary: 'stop the relay of this machine', load: () => import('./stop.ts') },
  { usage: 'down', summary: 'the same as stop', load: () => import('./stop.ts') },
  { usage: 'restart', summary: 'stop the relay, and start it in the background', load: () => import('./restart.ts') },
  {
    usage: 'use [url]',
    summary: 'choose the relay for commands without --relay; --here chooses that of this machine',
    load: () => import('./use.ts'),
  },
  {
    usage: 'freeze [...reason]',
    summary: 'stop the agent on every device at once, until you unfreeze',
    target: 'relay',
    load: () => import('./freeze.ts'),
  },
  {
    usage: 'unfreeze',
    summary: 'let the agent act on devices again',
    target: 'relay',
    load: () => import('./unfreeze.ts'),
  },
];

const completion: CommandEntry = {
  usage: 'completion <shell>',
  summary: 'print a script that completes command lines, for bash, zsh or fish',
  load: () => import('./completion.ts'),
};

const phoneCommands: CommandEntry[] = [
  {
    usage: 'send <text>',
    summary: 'send a message to the phone, or queue it for 24 hours; - reads the text from stdin',
    target: 'relay',
    load: () => import('./phone/send.ts'),
  },
  {
    usage: 'ask <text>',
    summary: 'ask a question and print the answer; the exit code says which one it was',
    target: 'relay',
    load: () => import('./phone/ask.ts'),
  },
  { usage: 'list', summary: 'show the queued messages', target: 'relay', load: () => import('./phone/list.ts') },
  {
    usage: 'history',
    summary: 'show the last messages and replies, and their state',
    target: 'relay',
    load: () => import('./phone/history.ts'),
  },
  {
    usage: 'approve',
    summary: "answer a coding agent's permission hook from the phone; reads its JSON on stdin",
    asksRelay: true,
    load: () => import('./phone/approve.ts'),
  },
  {
    usage: 'cancel [id]',
    summary: 'cancel a queued message or an open question, or all queued ones with --all',
    target: 'relay',
    load: () => import('./phone/cancel.ts'),
  },
];

const companionCommands: CommandEntry[] = [
  {
    usage: 'pair [link]',
    summary: 'pair with a relay by an svc-relay://pair link or a QR payload; - reads it from stdin',
    target: 'settings',
    load: () => import('./companion/pair.ts'),
  },
  {
    usage: 'run',
    summary: 'act as the phone: answer commands, show them, and ask for confirmations',
    target: 'settings',
    load: () => import('./companion/run.ts'),
  },
  {
    usage: 'status',
    summary: 'show the pairing of this companion and what it allows',
    target: 'settings',
    load: () => import('./companion/status.ts'),
  },
  {
    usage: 'trusted [action] [...verbs]',
    summary: 'verbs that the phone does not ask about: list, add or remove',
    target: 'settings',
    load: () => import('./companion/trusted.ts'),
  },
  {
    usage: 'blocklist [action] [...packages]',
    summary: 'apps in which the agent cannot act: list, add, remove or reset',
    target: 'settings',
    load: () => import('./companion/blocklist.ts'),
  },
  {
    usage: 'triggers [action] [...rules]',
    summary:
      'notifications that the phone offers to forward to the agent: list; add, remove, enable, disable or clear rules; on, off; kill, resume',
    target: 'settings',
    load: () => import('./companion/triggers.ts'),
  },
  {
    usage: 'export <file>',
    summary: 'write a backup of settings and pairing behind a passphrase',
    target: 'settings',
    load: () => import('./companion/export.ts'),
  },
  {
    usage: 'import <file>',
    summary: 'restore a backup of a companion or of the web app',
    target: 'settings',
    load: () => import('./companion/import.ts'),
  },
  {
    usage: 'unpair',
    summary: 'forget the relay: credentials, certificate pins and grants',
    target: 'settings',
    load: () => import('./companion/unpair.ts'),
  },
];

const voiceCommands: CommandEntry[] = [
  {
    usage: 'say <text>',
    summary: 'speak a text through the relay, to a WAV file or a loudspeaker; - reads it from stdin',
    target: 'relay',
    load: () => import('./voice/say.ts'),
  },
  {
    usage: 'transcribe <file>',
    summary: 'print the text of a recording',
    target: 'relay',
    load: () => import('./voice/transcribe.ts'),
  },
  {
    usage: 'talk',
    summary: 'talk to the agent: by typing, with a microphone, or with a recording',
    target: 'relay',
    load: () => import('./voice/talk.ts'),
  },
  {
    usage: 'voices [...ids]',
    summary: 'show the voices of each provider, and play them',
    target: 'relay',
    load: () => import('./voice/voices.ts'),
  },
  {
    usage: 'setup',
    summary: 'find the speech servers and programs of this machine, try them, and configure them',
    load: () => import('./voice/setup.ts'),
  },
  {
    usage: 'doctor',
    summary: 'show providers, keys and settings of voice, and measure the time to the first audio',
    target: 'relay',
    load: () => import('./voice/doctor.ts'),
  },
];

const reachCommands: CommandEntry[] = [
  {
    usage: 'start',
    summary: 'run a broker, by which phones reach relays without an open port',
    load: () => import('./reach/start.ts'),
  },
  {
    usage: 'status',
    summary: "show whether this machine's relay is connected to its broker, or how a broker is",
    load: () => import('./reach/status.ts'),
  },
  {
    usage: 'token',
    summary: 'create the credential with which a host proves itself to a broker',
    load: () => import('./reach/token.ts'),
  },
];

/** Programs inside `svc`, by the word that selects them. */
export const nestedPrograms: Record<string, Program> = {
  relay: {
    summary: "run and manage this machine's relay",
    commands: relayCommands,
    examples: ['svc relay start', 'svc relay doctor', 'svc relay service install'],
  },
  phone: {
    summary: 'send messages to the phone, and manage those still queued',
    commands: phoneCommands,
    examples: ['svc phone send "Dinner is ready"', 'svc phone ask "Deploy now?" --answers yes,no', 'svc phone list'],
  },
  voice: {
    summary: "try the relay's voice without a phone",
    commands: voiceCommands,
    examples: ['svc voice say "Hello"', 'svc voice transcribe note.wav', 'svc voice doctor'],
  },
  reach: {
    summary: 'run a broker for relays without an open port, and manage its hosts (experimental)',
    commands: reachCommands,
    examples: ['svc reach token --credentials hosts.json', 'svc reach start --credentials hosts.json --insecure-dev'],
  },
  companion: {
    summary: 'act as a phone in the terminal, to try the relay without one',
    commands: companionCommands,
    examples: ['svc pair | svc companion pair -', 'svc companion run'],
  },
};

/** The executables. `svc relay <command>` is `svc-relay <command>`, and both have `pair`. */
export const programs = {
  svc: {
    summary: 'pair devices and manage the relay',
    commands: [start, ...daily, pair, devices, mcp, doctor, service, backup, restore, bugreport, completion],
    examples: ['svc relay start', 'svc pair', 'svc status'],
  },
  'svc-relay': {
    summary: "run and manage this machine's relay",
    commands: [...relayCommands, ...daily, pair],
    examples: ['svc-relay start', 'svc-relay pair'],
  },
} satisfies Record<string, Program>;

export type ProgramName = keyof typeof programs;
