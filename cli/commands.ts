import type { Command } from 'cac';

/** What a command's file exports: it adds options, examples and the action. */
export interface CommandFile {
  define(command: Command): void;
}

export interface CommandEntry {
  /** Name and arguments as cac reads them. */
  usage: string;
  /** One line for the program's help. */
  summary: string;
  alias?: string;
  /** Loads the command's file. The help of a program and `--version` do without. */
  load(): Promise<CommandFile>;
}

/** A program is a list of commands: `svc`, `svc-relay`, or a word after `svc`. */
export interface Program {
  summary: string;
  commands: CommandEntry[];
  examples: string[];
}

const relayCommands: CommandEntry[] = [
  { usage: 'start', summary: 'run the relay in the foreground', load: () => import('./start.ts') },
  {
    usage: 'service [action]',
    summary: "keep the relay running with this user's systemd: status, install or remove",
    load: () => import('./service.ts'),
  },
  {
    usage: 'doctor',
    summary: 'check this installation, the agent and the relay, and say how to fix what is wrong',
    load: () => import('./doctor.ts'),
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
    load: () => import('./insecure-api-key.ts'),
  },
  {
    usage: 'dashboard-demo',
    summary: "serve a demo dashboard on this machine, to try the relay's plugin",
    load: () => import('./dashboard-demo.ts'),
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
  load: () => import('./pair.ts'),
};

const devices: CommandEntry = {
  usage: 'devices [action] [device]',
  summary: 'list the paired devices, or revoke one by its name or the prefix of its session',
  load: () => import('./devices.ts'),
};

const phoneCommands: CommandEntry[] = [
  {
    usage: 'send <text>',
    summary: 'send a message to the phone, or queue it for 24 hours; - reads the text from stdin',
    load: () => import('./phone/send.ts'),
  },
  { usage: 'list', summary: 'show the queued messages', load: () => import('./phone/list.ts') },
  {
    usage: 'cancel [id]',
    summary: 'cancel a queued message, or all of them with --all',
    load: () => import('./phone/cancel.ts'),
  },
];

const companionCommands: CommandEntry[] = [
  {
    usage: 'pair [link]',
    summary: 'pair with a relay by an svc-relay://pair link or a QR payload; - reads it from stdin',
    load: () => import('./companion/pair.ts'),
  },
  {
    usage: 'run',
    summary: 'act as the phone: answer commands, show them, and ask for confirmations',
    load: () => import('./companion/run.ts'),
  },
  {
    usage: 'status',
    summary: 'show the pairing of this companion and what it allows',
    load: () => import('./companion/status.ts'),
  },
  {
    usage: 'unpair',
    summary: 'forget the relay: credentials, certificate pins and grants',
    load: () => import('./companion/unpair.ts'),
  },
];

const voiceCommands: CommandEntry[] = [
  {
    usage: 'say <text>',
    summary: 'speak a text through the relay, to a WAV file or a loudspeaker; - reads it from stdin',
    load: () => import('./voice/say.ts'),
  },
  {
    usage: 'transcribe <file>',
    summary: 'print the text of a recording',
    load: () => import('./voice/transcribe.ts'),
  },
  {
    usage: 'talk',
    summary: 'talk to the agent: by typing, with a microphone, or with a recording',
    load: () => import('./voice/talk.ts'),
  },
  {
    usage: 'doctor',
    summary: 'show providers, keys and settings of voice, and measure the time to the first audio',
    load: () => import('./voice/doctor.ts'),
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
    examples: ['svc phone send "Dinner is ready"', 'svc phone list'],
  },
  voice: {
    summary: "try the relay's voice without a phone",
    commands: voiceCommands,
    examples: ['svc voice say "Hello"', 'svc voice transcribe note.wav', 'svc voice doctor'],
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
    commands: [pair, devices],
    examples: ['svc relay start', 'svc pair', 'svc devices'],
  },
  'svc-relay': {
    summary: "run and manage this machine's relay",
    commands: [...relayCommands, pair],
    examples: ['svc-relay start', 'svc-relay pair'],
  },
} satisfies Record<string, Program>;

export type ProgramName = keyof typeof programs;
