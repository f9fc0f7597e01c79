import { createRequire } from 'node:module';

/**
 * Path of a package's CommonJS file, for another thread or process. It is beside this code in the bundle
 * (`cli/bundle.mjs`), and installed in the source tree.
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
