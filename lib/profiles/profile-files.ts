import { agentRoot, type Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { type Cancel, type Clock, every } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import { MiB } from '../kit/units.ts';
import { isMapping } from '../kit/yaml.ts';
import type { Log } from '../log.ts';
import { type Avatar, readAvatar } from './avatar.ts';
import { createConfigReader } from './config-file.ts';
import {
  type Conditions,
  type MemoryEntry,
  readMemory,
  readSoul,
  type Saved,
  type Soul,
  writeDocument,
} from './documents.ts';
import { type ProfilePlace, profileHome } from './home.ts';
import { listSkills, type Skill } from './skills.ts';

/** The part of a configuration that clients may see. */
export interface VisibleConfig {
  description?: string;
  model?: { default: string };
}

export type ProfileFiles = ReturnType<typeof createProfileFiles>;

export interface ProfileFilesDeps {
  host: Host;
  config: Pick<Config, 'agentConfig' | 'mediaMaxSizeMb' | 'relayHome'>;
  clock: Clock;
  log: Log;
}

const SWEEP_PERIOD = 300_000;

/**
 * The files of one profile, for the routes (contract 07 §1.5), even with discovery off. `name` is percent-decoded; every
 * method throws RelayError `not-found` for an unknown one.
 */
export function createProfileFiles({ host, config, clock, log }: ProfileFilesDeps) {
  const writes = createEvent<[]>();
  const readConfig = createConfigReader(host);
  const periodic: Cancel[] = [];

  const placeOf = async (name: string): Promise<ProfilePlace> => {
    const place = await profileHome(host.files, config, name, (warning) => log.warn(warning));
    if (place) return { ...place, name };
    throw new RelayError('not-found', 'profile_not_found', { extra: { profile: name } });
  };

  async function removeLeftovers(): Promise<void> {
    const root = agentRoot(config);
    try {
      const names = ((await host.files.list(`${root}/profiles`)) ?? []).map((entry) => entry.name);
      const homes = [root, ...names.map((name) => `${root}/profiles/${name}`)];
      const own = [host.agentHome, `${host.agentHome}/images/inbox`, `${host.agentHome}/svc-relay`, config.relayHome];
      const folders = [...own, ...homes.flatMap((home) => [home, `${home}/memories`])];
      for (const place of new Set(folders)) await host.homeFiles.sweep(place);
    } catch (error) {
      log.warn(`cannot remove leftovers of earlier writes: ${describeError(error)}`);
    }
  }

  return {
    /** Calls back after each successful write. */
    onWrite: writes.on,

    async config(name: string): Promise<VisibleConfig> {
      const parsed = await readConfig((await placeOf(name)).config);
      if (parsed.ok) return visible(parsed.mapping);
      if ('missing' in parsed) throw new RelayError('not-found', 'config_not_found', { extra: { profile: name } });
      throw new RelayError('internal', 'config_parse_failed', { extra: { profile: name, detail: parsed.problem } });
    },
    skills: async (name: string): Promise<Skill[]> => listSkills(host, (await placeOf(name)).home),
    soul: async (name: string): Promise<Soul> => readSoul(host, await placeOf(name)),
    memory: async (name: string): Promise<MemoryEntry[]> => readMemory(host, await placeOf(name), log),
    avatar: async (name: string): Promise<Avatar> => readAvatar(host, await placeOf(name), config.mediaMaxSizeMb * MiB),

    /**
     * A profile to write to, so that the name is checked before a body is read. Without a condition, the last
     * write wins. Its methods throw RelayError with the contract's codes.
     */
    async find(name: string) {
      const place = await placeOf(name);
      const write = async (path: string, content: string, conditions: Conditions, failure: string): Promise<Saved> => {
        const saved = await writeDocument(host, place, { path, content, conditions, failure });
        log.info(`wrote ${path.split('/').at(-1)} of profile ${name}: ${saved.bytes} bytes`);
        writes.emit();
        return saved;
      };
      return {
        writeSoul: (content: string, conditions: Conditions): Promise<Saved> =>
          write('SOUL.md', content, conditions, 'soul_write_failed'),
        /** The name was checked with `memoryFilenameFault`. */
        writeMemory: (filename: string, content: string, conditions: Conditions): Promise<Saved> =>
          write(`memories/${filename}`, content, conditions, 'memory_write_failed'),
      };
    },

    /** Removes leftovers of killed writes, now and every five minutes, in the background. */
    start(): void {
      void removeLeftovers();
      periodic.push(every(clock, SWEEP_PERIOD, removeLeftovers, () => {}));
    },

    stop(): void {
      for (const cancel of periodic.splice(0)) cancel();
    },
  };
}

function visible({ description, model }: Record<string, unknown>): VisibleConfig {
  const named = isMapping(model) ? model.default : model;
  return {
    ...(typeof description === 'string' ? { description } : {}),
    ...(typeof named === 'string' ? { model: { default: named } } : {}),
  };
}
