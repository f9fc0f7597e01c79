import { readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { type Config, type Directories, readConfig, type Variable } from '../lib/config.ts';
import { errnoOf, isUnreadable } from '../lib/host/errors.ts';
import { decodeEnvFile, parseEnvFile } from '../lib/kit/env-file.ts';
import { CommandError, printable, UsageError } from './output.ts';

type Env = Record<string, string | undefined>;

export interface Environment {
  /** The process's variables, overridden by those of `<agent_home>/.env`. */
  env: Env;
  directories: Directories;
  fileLoaded: boolean;
}

/**
 * Reads the environment of a command (contract 07 §6.1). The agent home is `SVC_HOME` of the process, else `~/.svc`; an
 * `SVC_HOME` in the file does not move it. A missing file is ignored, and one that this user may not read.
 * @throws UsageError for a relative `SVC_HOME`: every folder would have its own relay; CommandError when the disk or the
 * machine fails, since the file may demand an operator key or restrict what is served.
 */
export function loadEnvironment(processEnv: Env = process.env): Environment {
  const directories = directoriesOf(processEnv);
  const { agentHome } = directories;
  try {
    const file = parseEnvFile(decodeEnvFile(readFileSync(join(agentHome, '.env'))));
    return { env: { ...processEnv, ...file, SVC_HOME: processEnv.SVC_HOME }, directories, fileLoaded: true };
  } catch (error) {
    if (isUnreadable(error)) return { env: { ...processEnv }, directories, fileLoaded: false };
    if (errnoOf(error) !== 'EIO') throw error;
    const file = printable(join(agentHome, '.env'));
    throw new CommandError(`${file} cannot be read: the disk reports an error (EIO)`, 'See what failed with: dmesg');
  }
}

/**
 * The environment of a command, and the configuration of the relay of this machine.
 * @throws RelayError `invalid` for an invalid variable.
 */
export function loadConfig(processEnv: Env): Environment & { config: Config } {
  const environment = loadEnvironment(processEnv);
  return { ...environment, config: readConfig(environment.env, environment.directories).config };
}

/** Reads one variable by itself, so that a bad value of another does not stop the command. */
export const readVariable = <T>(variable: Variable<T>, { env, directories }: Environment): T =>
  variable.read({ env, directories, warn: () => {} });

/**
 * The base directories of this process, without reading anything.
 * @throws UsageError for a relative `SVC_HOME`.
 */
export function directoriesOf(processEnv: Env): Directories {
  const home = processEnv.HOME || homedir();
  const chosen = processEnv.SVC_HOME?.trim();
  if (chosen && !/^(?:\/|~(?:\/|$))/.test(chosen)) {
    throw new UsageError(
      `SVC_HOME is relative ('${printable(chosen)}'): set it to an absolute path such as ${printable(resolve(chosen))}`,
    );
  }
  return { home, agentHome: chosen ? resolve(chosen.replace(/^~(?=\/|$)/, () => home)) : join(home, '.svc') };
}
