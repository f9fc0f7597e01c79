import { accessSync, constants } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Browser } from 'playwright-core';
import { CommandError, printable } from '../output.ts';

const DRIVER = 'playwright-core';
const BROWSERS = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

export type OpenBrowser = (folder: string) => Promise<Browser>;

/**
 * A browser of this machine, whose profile is in a folder of the drill.
 * @throws CommandError that names what is not installed.
 */
export function openBrowser(directory: string | null, path: string): OpenBrowser {
  const driver = driverOf(directory);
  if (driver === null) {
    const isCheckout = directory !== null && !directory.includes('/node_modules/');
    throw new CommandError(
      `--web needs a package that is not installed: ${DRIVER}`,
      isCheckout ? `Run in ${printable(directory)}: npm ci` : `Install it beside svc-relay: npm install -g ${DRIVER}`,
    );
  }
  const executablePath = path.split(delimiter).flatMap(executables)[0];
  if (executablePath === undefined) {
    throw new CommandError(
      `--web needs a browser, and the PATH has none of ${BROWSERS.join(', ')}`,
      'Install Chromium, or leave out --web.',
    );
  }
  return async (folder) => {
    const { chromium } = ((await import(driver)) as { default: typeof import('playwright-core') }).default;
    return chromium.launch({
      executablePath,
      // Chromium refuses to run as root with its sandbox.
      args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
      env: { PATH: path, HOME: join(folder, 'home'), TMPDIR: join(folder, 'tmp') },
      // The drill ends it.
      handleSIGINT: false,
      handleSIGTERM: false,
      handleSIGHUP: false,
    });
  };
}

function driverOf(directory: string | null): string | null {
  if (directory === null) return null;
  try {
    return pathToFileURL(createRequire(join(directory, 'package.json')).resolve(DRIVER)).href;
  } catch {
    return null;
  }
}

function executables(directory: string): string[] {
  return BROWSERS.map((name) => join(directory, name)).filter((file) => {
    try {
      accessSync(file, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}
