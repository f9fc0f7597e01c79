import { createRequire } from 'node:module';

/**
 * Path of a package's CommonJS file, for a thread or process of its own. In the bundle it lies beside this code
 * (`cli/bundle.mjs`), or is installed like every package of the source tree.
 * @throws when it is in neither place.
 */
export function packageFile(name: string): string {
  const { resolve } = createRequire(import.meta.url);
  try {
    return resolve(`./${name}.cjs`);
  } catch {
    return resolve(name);
  }
}
