import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';

/** Clips of this process that are on disk. */
export const leftClips = async () =>
  (await readdir(tmpdir())).filter((name) => name.startsWith(`svc-relay-voice-${process.pid}-`));
