import type { Config } from '../config.ts';
import type { Host } from '../host/index.ts';
import { defaultPlace } from './discovery.ts';
import { unlessUnreadable } from './readable.ts';
import type { ProfilePlace } from './row.ts';

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what a name may not have
const NAME = /^(?!\.)[^/\\\u0000-\u001f\u007f-\u009f]{1,128}$/;

/**
 * Where a profile's files are, or null for a name that is none (contract 07 §1.1, §1.5). `default` is the effective
 * default home, read anew; `agentHome` is the root of the profiles. A home need not have a configuration file.
 */
export async function profileHome(
  host: Host,
  config: Pick<Config, 'agentHome' | 'agentConfig'>,
  name: string,
  warn: (message: string) => void = () => {},
): Promise<ProfilePlace | null> {
  if (name === 'default') return defaultPlace(host, config, warn);
  if (!NAME.test(name)) return null;
  const profiles = `${config.agentHome}/profiles`;
  const home = `${profiles}/${name}`;
  const [parent, real] = await Promise.all([
    unlessUnreadable(host.files.realPath(profiles)),
    unlessUnreadable(host.files.realPath(home)),
  ]);
  if (parent === null || real === null || real.slice(0, real.lastIndexOf('/')) !== parent) return null;
  if ((await unlessUnreadable(host.files.stat(home)))?.kind !== 'directory') return null;
  return { name, home, config: `${home}/config.yaml` };
}
