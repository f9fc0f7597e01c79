/** An element of a screen. Views are plain descriptions, laid out again on every read. */
export interface View {
  className: string;
  kind: 'leaf' | 'column' | 'row' | 'scroll';
  /** In pixels. Containers are as high as their children; a `scroll` takes the remaining space. */
  height?: number;
  id?: string;
  text?: string;
  description?: string;
  hint?: string;
  onClick?: () => void;
  onLongClick?: () => void;
  input?: { value: string; change: (text: string) => void; password: boolean };
  /** Present when the view is checkable. */
  checked?: boolean;
  enabled?: boolean;
  children: View[];
}

type Options = Partial<Omit<View, 'kind' | 'className' | 'children'>>;

const leaf = (className: string, height: number, options: Options): View => ({
  className: `android.widget.${className}`,
  kind: 'leaf',
  height,
  children: [],
  ...options,
});

export const label = (text: string, options: Options = {}): View => leaf('TextView', 100, { text, ...options });

export const button = (text: string, onClick: () => void, options: Options = {}): View =>
  leaf('Button', 140, { text, onClick, ...options });

/** A button with an image, described by its description only. */
export const icon = (description: string, onClick: () => void, options: Options = {}): View =>
  leaf('ImageButton', 140, { description, onClick, ...options });

export const toggle = (text: string, checked: boolean, onClick: () => void, options: Options = {}): View =>
  leaf('Switch', 140, { text, checked, onClick, ...options });

/** A text field. `hint` shows while it is empty. */
export const field = (
  id: string,
  hint: string,
  value: string,
  change: (text: string) => void,
  options: { password?: boolean } = {},
): View => leaf('EditText', 140, { id, hint, input: { value, change, password: options.password ?? false } });

const box = (className: string, kind: View['kind'], children: View[], options: Options = {}): View => ({
  className,
  kind,
  children,
  ...options,
});

export const column = (...children: View[]): View => box('android.widget.LinearLayout', 'column', children);
export const row = (...children: View[]): View => box('android.widget.LinearLayout', 'row', children);

/** A vertical list that scrolls within the remaining space. */
export const list = (id: string, children: View[]): View =>
  box('androidx.recyclerview.widget.RecyclerView', 'scroll', children, { id });

/** A row that is clicked as a whole and contains lines of text. */
export const item = (lines: string[], onClick: () => void, options: Options = {}): View =>
  box(
    'android.widget.LinearLayout',
    'column',
    lines.map((text) => label(text)),
    { onClick, ...options },
  );
