import { type Signal, signal } from '@preact/signals';
import type { ButtonHTMLAttributes, ComponentChildren, InputHTMLAttributes } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';
import { createRequired } from './context.ts';
import { copyText } from './copy.ts';
import { useT } from './i18n.ts';
import { Icon, type IconName } from './icons.tsx';

type ButtonKind = 'primary' | 'danger' | 'plain';

interface ButtonProps extends Omit<ButtonHTMLAttributes<HTMLButtonElement>, 'icon' | 'class'> {
  kind?: ButtonKind;
  icon?: IconName;
  /** Name of a button that shows only its icon. */
  label?: string;
  children?: ComponentChildren;
}

/** A button of at least 44 pixels. It submits nothing unless its type says so. */
export function Button({ kind, icon, label, children, type = 'button', ...rest }: ButtonProps) {
  const isIconOnly = children === undefined;
  return (
    <button
      type={type}
      class={`button ${kind ?? ''} ${isIconOnly ? 'icon-only' : ''}`}
      aria-label={label}
      title={isIconOnly ? label : undefined}
      {...rest}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export type Tone = 'good' | 'warn' | 'bad';

/** A short state. Without a tone it is neutral. */
export const Chip = ({ tone, children }: { tone?: Tone; children: ComponentChildren }) => (
  <span class={`chip ${tone ?? ''}`}>{children}</span>
);

/** Information for the reader, with the possible next steps. */
export function Notice({
  tone,
  children,
  action,
}: {
  tone?: Tone;
  children: ComponentChildren;
  action?: ComponentChildren;
}) {
  return (
    <div class={`notice ${tone ?? ''}`} role={tone === 'bad' ? 'alert' : 'status'}>
      <span class="text">{children}</span>
      {action}
    </div>
  );
}

/** Replaces missing content: the reason, and the one next step. */
export const Empty = ({
  icon,
  children,
  action,
}: {
  icon: IconName;
  children: ComponentChildren;
  action?: ComponentChildren;
}) => (
  <div class="empty">
    <Icon name={icon} />
    <p>{children}</p>
    {action}
  </div>
);

export function Loading() {
  const t = useT();
  return (
    <div class="empty" role="status">
      <span class="spinner" />
      <span class="off-screen">{t('Loading')}</span>
    </div>
  );
}

export function Retry({ disabled, onClick }: { disabled?: boolean; onClick(): void }) {
  const t = useT();
  return (
    <Button icon="refresh" disabled={disabled} onClick={onClick}>
      {t('Retry')}
    </Button>
  );
}

/** Handles an event in the page, instead of the browser. */
export const inPage = (work: () => void) => (event: Event) => {
  event.preventDefault();
  work();
};

interface FieldProps {
  label: string;
  hint?: ComponentChildren;
  error?: string;
  /** Renders the control with the id for the label and the description. */
  children(control: { id: string; 'aria-describedby'?: string; 'aria-invalid'?: 'true' }): ComponentChildren;
}

/** A labelled control with a hint and an error. */
export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId();
  const describedBy = (error ?? hint) ? `${id}-about` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, 'aria-describedby': describedBy, 'aria-invalid': error ? 'true' : undefined })}
      {(error ?? hint) && (
        <span id={describedBy} class={`small ${error ? 'bad' : 'soft'}`} role={error ? 'alert' : undefined}>
          {error ?? hint}
        </span>
      )}
    </div>
  );
}

type TextAttribute =
  | 'autocapitalize'
  | 'autocomplete'
  | 'autocorrect'
  | 'enterkeyhint'
  | 'maxLength'
  | 'placeholder'
  | 'required'
  | 'spellcheck';

interface TextFieldProps extends Omit<FieldProps, 'children'>, Pick<InputHTMLAttributes, TextAttribute> {
  of: Signal<string>;
  type?: 'password' | 'search' | 'url';
}

/** A field of one line, for the text of a signal. Further properties are those of its input. */
export function TextField({ label, hint, error, of, ...input }: TextFieldProps) {
  // Each type of input has a separate TypeScript type, with none for several.
  const attributes = input as Omit<typeof input, 'type'>;
  return (
    <Field label={label} hint={hint} error={error}>
      {(control) => (
        <input
          {...control}
          class="input"
          {...attributes}
          value={of.value}
          onInput={(event) => {
            of.value = event.currentTarget.value;
          }}
        />
      )}
    </Field>
  );
}

interface SwitchProps {
  label: string;
  hint?: ComponentChildren;
  checked: boolean;
  disabled?: boolean;
  onChange(checked: boolean): void;
}

/** A row of a list that is on or off. */
export function SwitchRow({ label, hint, checked, disabled, onChange }: SwitchProps) {
  const id = useId();
  return (
    <div class="item">
      <span class="text">
        <label for={id}>{label}</label>
        {hint && (
          <span id={`${id}-about`} class="small soft">
            {hint}
          </span>
        )}
      </span>
      <input
        id={id}
        class="switch"
        type="checkbox"
        role="switch"
        checked={checked}
        aria-checked={checked}
        disabled={disabled}
        aria-describedby={hint ? `${id}-about` : undefined}
        onChange={(event) => onChange(event.currentTarget.checked)}
      />
    </div>
  );
}

interface ChoiceProps {
  label: string;
  hint?: ComponentChildren;
  value: string;
  options: readonly (readonly [value: string, text: string])[];
  onChange(value: string): void;
}

/** A labelled choice of one. */
export const Choice = ({ label, hint, value, options, onChange }: ChoiceProps) => (
  <Field label={label} hint={hint}>
    {(control) => (
      <select {...control} class="input" value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([option, text]) => (
          <option key={option} value={option}>
            {text}
          </option>
        ))}
      </select>
    )}
  </Field>
);

interface DialogProps {
  title: string;
  children: ComponentChildren;
  /** Buttons besides `Cancel`, which is always present. */
  actions?: ComponentChildren;
  /** Text of the button that submits the form. */
  submit?: string;
  kind?: 'primary' | 'danger';
  /** True if that button is disabled, as it always is without the relay. */
  isBlocked?: boolean;
  cancelText?: string;
  /** True if the relay does not answer. The caller disables controls that would change something. */
  isAway?: boolean;
  /** Escape, `Cancel`, or the end of the form. */
  onClose(): void;
  onSubmit?(): void;
}

/** A modal dialog, which keeps the focus until it is closed. */
export function Dialog(props: DialogProps) {
  const {
    title,
    children,
    actions,
    submit,
    kind = 'primary',
    isBlocked,
    cancelText,
    isAway,
    onClose,
    onSubmit,
  } = props;
  const t = useT();
  const id = useId();
  const element = useRef<HTMLDialogElement>(null);
  // Before the next key: if this ran after the paint, an immediate Tab would still move through the page below.
  useLayoutEffect(() => {
    const dialog = element.current;
    const asked = document.activeElement;
    if (!dialog?.open) dialog?.showModal();
    return () => {
      dialog?.close();
      // The element to which the browser returns the focus may be removed with the dialog.
      requestAnimationFrame(() => {
        if (document.activeElement === document.body && asked instanceof HTMLElement) asked.focus();
      });
    };
  }, []);
  return (
    <dialog ref={element} aria-labelledby={id} onCancel={inPage(onClose)}>
      <form onSubmit={inPage(() => isAway || onSubmit?.())}>
        <h2 id={id}>{title}</h2>
        {children}
        {isAway && <Notice tone="warn">{t('The relay does not answer.')}</Notice>}
        <div class="actions">
          <Button onClick={onClose}>{cancelText ?? t('Cancel')}</Button>
          {actions}
          {submit && (
            <Button type="submit" kind={kind} disabled={isBlocked || isAway}>
              {submit}
            </Button>
          )}
        </div>
      </form>
    </dialog>
  );
}

interface QuestionProps {
  title: string;
  children: ComponentChildren;
  /** Text of the confirming button. */
  confirm: string;
  isBusy: boolean;
  isAway?: boolean;
  onConfirm(): void;
  onClose(): void;
}

/** Asks before an irreversible action. */
export const Question = ({ confirm, isBusy, onConfirm, ...dialog }: QuestionProps) => (
  <Dialog {...dialog} submit={confirm} kind="danger" isBlocked={isBusy} onSubmit={onConfirm} />
);

const TOAST_TIME = 6000;
const MAX_TOASTS = 3;

interface Toast {
  id: number;
  text: string;
}

export type Toasts = ReturnType<typeof createToasts>;

/** Short messages about the last action. Each disappears by itself. */
export function createToasts() {
  const shown: Signal<readonly Toast[]> = signal([]);
  let last = 0;
  return {
    shown,
    /** Returns a function that removes it earlier. */
    show(text: string): () => void {
      const id = ++last;
      shown.value = [...shown.value, { id, text }].slice(-MAX_TOASTS);
      const remove = () => {
        shown.value = shown.value.filter((toast) => toast.id !== id);
      };
      setTimeout(remove, TOAST_TIME);
      return remove;
    },
  };
}

const [ProvideToasts, useToasts] = createRequired<Toasts>('The list of toasts');

export { ProvideToasts };

/** `const toast = useToast(); toast('Saved')`. */
export const useToast = (): Toasts['show'] => useToasts().show;

export const ToastList = () => (
  <div class="toasts" role="status" aria-live="polite">
    {useToasts().shown.value.map(({ id, text }) => (
      <p key={id}>{text}</p>
    ))}
  </div>
);

/** Copies a text, and shows that. Resolves to whether the browser allowed it. */
export function useCopy(): (text: string) => Promise<boolean> {
  const t = useT();
  const toast = useToast();
  return async (text) => {
    const isCopied = await copyText(text);
    toast(isCopied ? t('Copied') : t('This browser does not let the page copy.'));
    return isCopied;
  };
}
