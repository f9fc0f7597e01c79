import type { ITheme } from '@xterm/xterm';

const LIGHT: ITheme = {
  background: '#ffffff',
  foreground: '#171a20',
  cursor: '#2456c9',
  cursorAccent: '#ffffff',
  selectionBackground: '#b8cdf8',
  black: '#171a20',
  red: '#b3261e',
  green: '#12693a',
  yellow: '#7a4d00',
  blue: '#2456c9',
  magenta: '#8a2da5',
  cyan: '#0b6470',
  white: '#515a69',
  brightBlack: '#5d6675',
  brightRed: '#c4342b',
  brightGreen: '#1a7f49',
  brightYellow: '#8a5a00',
  brightBlue: '#3567db',
  brightMagenta: '#9d3fb8',
  brightCyan: '#127583',
  brightWhite: '#333a44',
};

const DARK: ITheme = {
  background: '#0c0f12',
  foreground: '#eceff4',
  cursor: '#8fb3ff',
  cursorAccent: '#0c0f12',
  selectionBackground: '#34507f',
  black: '#20262e',
  red: '#ff9d94',
  green: '#6fd39b',
  yellow: '#f0c069',
  blue: '#8fb3ff',
  magenta: '#dca3f5',
  cyan: '#74d4e0',
  white: '#d9dee6',
  brightBlack: '#8d97a6',
  brightRed: '#ffbdb7',
  brightGreen: '#98e6bb',
  brightYellow: '#ffd994',
  brightBlue: '#b9d0ff',
  brightMagenta: '#ecc6ff',
  brightCyan: '#a3eaf3',
  brightWhite: '#ffffff',
};

/** The terminal's colours for a light or dark page. */
export const colorsOf = (isDark: boolean): ITheme => (isDark ? DARK : LIGHT);
